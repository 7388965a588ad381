package agent

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/sluice-mesh/sluice/install/settings"
)

// runtimeRoot returns a function that returns the path /proc/PID/root of the container runtime,
// which leads into the runtime's mount namespace. There the runtime creates the agent's mounts and
// reads network configurations. The node's PID 1 may be in another mount namespace. If searchProc
// is false, the function returns an error.
func runtimeRoot(v settings.Values) func() (string, error) {
	proc := v.Text("SLUICE_MOUNTED_PROC_DIR")
	if !v.Bool("SLUICE_SEARCH_PROC") {
		return func() (string, error) {
			return "", errors.New("cannot find the runtime's root directory: " +
				"searchProc is false; set it to true to search the node's /proc")
		}
	}
	return func() (string, error) { return rootOfParent(proc) }
}

// rootOfParent returns the root directory of the parent process. The parent of the first process of
// a container is the runtime's shim or monitor.
func rootOfParent(proc string) (string, error) {
	// The link contains the PID of this process in the PID namespace of the mounted /proc.
	self, err := os.Readlink(filepath.Join(proc, "self"))
	if err != nil {
		return "", fmt.Errorf("find this process in the node's /proc: %w", err)
	}
	ppid, err := parentOf(filepath.Join(proc, self, "status"))
	if err != nil {
		return "", err
	}
	if ppid == "0" {
		return "", fmt.Errorf("%s is not the node's /proc: "+
			"it shows no parent process of the agent (PPid 0)", proc)
	}
	root := filepath.Join(proc, ppid, "root")
	if _, err := os.Stat(root + "/."); err != nil {
		return "", fmt.Errorf("stat the runtime's root directory: %w", err)
	}
	return root, nil
}

// parentOf returns the parent's process id in a status file (proc_pid_status(5)).
func parentOf(status string) (string, error) {
	text, err := os.ReadFile(status)
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(string(text)) {
		if ppid, found := strings.CutPrefix(line, "PPid:"); found {
			return strings.TrimSpace(ppid), nil
		}
	}
	return "", fmt.Errorf("%s has no PPid line", status)
}
