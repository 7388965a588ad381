package soak

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// insideEnv is set in the process that has its own mount namespace.
const insideEnv = "SLUICE_SOAK_INSIDE"

// TestMain runs the tests in a separate mount namespace with its own /run. Mounts in this namespace
// propagate to the agent's mount namespace, as mounts of a node propagate to a container.
func TestMain(m *testing.M) {
	if os.Getenv(insideEnv) == "" && os.Geteuid() == 0 {
		os.Exit(runInMountNamespace())
	}
	if os.Geteuid() == 0 {
		if err := mountRun(); err != nil {
			fmt.Fprintln(os.Stderr, "mount /run:", err)
			os.Exit(1)
		}
	}
	os.Exit(m.Run())
}

// runInMountNamespace runs the test binary in a new mount namespace, and returns the exit code.
func runInMountNamespace() int {
	self, err := os.Executable()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	c := exec.Command(self, os.Args[1:]...)
	c.Env = append(os.Environ(), insideEnv+"=1")
	c.Stdin, c.Stdout, c.Stderr = os.Stdin, os.Stdout, os.Stderr
	c.SysProcAttr = &syscall.SysProcAttr{Unshareflags: unix.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL}
	err = c.Run()
	if exit := new(exec.ExitError); errors.As(err, &exit) {
		return exit.ExitCode()
	} else if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// mountRun mounts an empty /run with shared propagation.
func mountRun() error {
	return errors.Join(
		unix.Mount("tmpfs", "/run", "tmpfs", 0, ""),
		unix.Mount("", "/run", "", unix.MS_SHARED, ""),
		os.MkdirAll(netnsDir, 0o755),
	)
}
