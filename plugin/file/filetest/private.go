// Package filetest provides faults for tests of files: full disks, read-only directories, immutable
// files and system calls that fail.
package filetest

import (
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// env is the environment variable with the name of the test that Private runs again.
const env = "SLUICE_PRIVATE_MOUNTS"

// Private reports whether the process has its own mount namespace. Otherwise it runs the test again
// in a child process with its own mount namespace, fails the test if the child fails, and returns
// false: the caller must then return. Private must not be called in a subtest. It needs no root
// where user namespaces are permitted.
func Private(t *testing.T) bool {
	t.Helper()
	if os.Getenv(env) == t.Name() {
		// Mounts must not propagate to the original namespace.
		if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
			t.Fatal(err)
		}
		return true
	}
	// The kernel sends Pdeathsig when the thread that started the child ends. Without the lock, the
	// goroutine of a parallel test could end the thread.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cmd := exec.CommandContext(t.Context(), os.Args[0],
		"-test.run=^"+regexp.QuoteMeta(t.Name())+"$", "-test.count=1")
	// The race detector sleeps for a second at the end of each process.
	cmd.Env = append(os.Environ(), env+"="+t.Name(), "GORACE=atexit_sleep_ms=0")
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL,
	}
	if uid := os.Geteuid(); uid != 0 {
		cmd.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: uid, Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{
			ContainerID: 0, HostID: os.Getegid(), Size: 1,
		}}
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("the test failed in its own mount namespace: %v\n%s", err, out)
	}
	return false
}

// Disk mounts an empty tmpfs of the given size, such as "64k", on a new directory, and returns the
// directory.
func Disk(t *testing.T, size string) string {
	t.Helper()
	dir := t.TempDir()
	if err := unix.Mount("disk", dir, "tmpfs", 0, "size="+size); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unmount(t, dir) })
	return dir
}

// ReadOnly makes dir read-only until the returned function is called or the test ends.
func ReadOnly(t *testing.T, dir string) (writable func()) {
	t.Helper()
	if err := unix.Mount(dir, dir, "", unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("", dir, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, ""); err != nil {
		t.Fatal(err)
	}
	mounted := true
	writable = func() {
		if mounted {
			unmount(t, dir)
		}
		mounted = false
	}
	t.Cleanup(writable)
	return writable
}

func unmount(t *testing.T, dir string) {
	t.Helper()
	if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
		t.Errorf("unmount %s: %v", dir, err)
	}
}

// Fill fills the file system of dir, and returns a function that frees the space.
func Fill(t *testing.T, dir string) (free func()) {
	t.Helper()
	f, err := os.CreateTemp(dir, "ballast")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close() //nolint:errcheck // only the space is needed
	for _, size := range []int{64 << 10, 4 << 10, 1} {
		for chunk := make([]byte, size); err == nil; {
			_, err = f.Write(chunk)
		}
		err = nil
	}
	return func() {
		if err := os.Remove(f.Name()); err != nil {
			t.Error(err)
		}
	}
}
