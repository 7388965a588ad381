package agent

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/sluice-mesh/sluice/install/settings"
)

// nodeRoot returns a function that returns the root directory of the container runtime. The runtime
// creates the agent's mounts, and reads network configurations, in the mount namespace of this
// root; process 1 of the node may have another one.
func nodeRoot(v settings.Values) func() (string, error) {
	proc := v.Text("SLUICE_MOUNTED_PROC_DIR")
	if !v.Bool("SLUICE_SEARCH_PROC") {
		return func() (string, error) {
			return "", errors.New("the node's /proc is not looked at, since searchProc is false")
		}
	}
	return func() (string, error) { return rootOfParent(proc) }
}

// rootOfParent returns the root directory of the parent process, which for the first process of a
// container is the runtime's shim or monitor.
func rootOfParent(proc string) (string, error) {
	self, err := os.Readlink(filepath.Join(proc, "self")) // as the processes of proc number it
	if err != nil {
		return "", fmt.Errorf("this process in the node's /proc: %w", err)
	}
	parent, err := parentOf(filepath.Join(proc, self, "status"))
	if err != nil {
		return "", err
	}
	if parent == "0" {
		return "", fmt.Errorf("%s is not the node's /proc: the agent has no parent there", proc)
	}
	root := filepath.Join(proc, parent, "root")
	if _, err := os.Stat(root + "/."); err != nil {
		return "", fmt.Errorf("the runtime's root directory: %w", err)
	}
	return root, nil
}

// parentOf returns the parent's process id in a status file (proc_pid_status(5)).
func parentOf(status string) (string, error) {
	f, err := os.Open(status)
	if err != nil {
		return "", err
	}
	defer f.Close() //nolint:errcheck // only read from
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		if parent, found := strings.CutPrefix(lines.Text(), "PPid:"); found {
			return strings.TrimSpace(parent), nil
		}
	}
	return "", errors.Join(fmt.Errorf("%s has no PPid", status), lines.Err())
}
