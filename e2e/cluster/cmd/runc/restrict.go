package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// capabilityNames contains the names of capabilities without CAP_. The index is the number.
var capabilityNames = strings.Fields(`
	CHOWN DAC_OVERRIDE DAC_READ_SEARCH FOWNER FSETID KILL SETGID SETUID SETPCAP LINUX_IMMUTABLE
	NET_BIND_SERVICE NET_BROADCAST NET_ADMIN NET_RAW IPC_LOCK IPC_OWNER SYS_MODULE SYS_RAWIO
	SYS_CHROOT SYS_PTRACE SYS_PACCT SYS_ADMIN SYS_BOOT SYS_NICE SYS_RESOURCE SYS_TIME
	SYS_TTY_CONFIG MKNOD LEASE AUDIT_WRITE AUDIT_CONTROL SETFCAP MAC_OVERRIDE MAC_ADMIN SYSLOG
	WAKE_ALARM BLOCK_SUSPEND AUDIT_READ PERFMON BPF CHECKPOINT_RESTORE`)

// boundingSet returns the capability bounding set of this process.
func boundingSet() (map[string]bool, error) {
	set := map[string]bool{}
	for number, name := range capabilityNames {
		has, err := unix.PrctlRetInt(unix.PR_CAPBSET_READ, uintptr(number), 0, 0, 0)
		if errors.Is(err, unix.EINVAL) { // unknown to an older kernel
			continue
		} else if err != nil {
			return nil, err
		}
		set["CAP_"+name] = has == 1
	}
	return set, nil
}

// restrict removes the capabilities that are not in set from a file with the specification of a
// container or a process. A missing file is not an error.
func restrict(file string, set map[string]bool) error {
	content, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) { // runc reports the missing file
		return nil
	} else if err != nil {
		return err
	}
	content, err = removeCapabilities(content, set)
	if err != nil {
		return err
	}
	return os.WriteFile(file, content, 0o600)
}

// removeCapabilities returns a specification without the capabilities that are not in set.
func removeCapabilities(specification []byte, set map[string]bool) ([]byte, error) {
	d := json.NewDecoder(bytes.NewReader(specification))
	d.UseNumber() // a float64 would round large numbers
	var document map[string]any
	if err := d.Decode(&document); err != nil {
		return nil, err
	}
	// The specification of a process has the form of the member "process" in the specification of a
	// container.
	process, isContainer := document["process"].(map[string]any)
	if !isContainer {
		process = document
	}
	capabilities, _ := process["capabilities"].(map[string]any)
	for setName, value := range capabilities { // bounding, effective, ...
		names, _ := value.([]any)
		capabilities[setName] = slices.DeleteFunc(names, func(name any) bool {
			capability, _ := name.(string)
			return !set[capability]
		})
	}
	return json.Marshal(document)
}
