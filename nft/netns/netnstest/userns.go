package netnstest

import (
	"io"
	"os"
	"os/exec"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/nft/netns"
)

// StartInUserNS starts a process in the user namespace that owns the network namespace. The
// process runs until the test ends.
func StartInUserNS(t testing.TB, ns *netns.NS) {
	t.Helper()
	owner, err := unix.IoctlRetInt(ns.FD(), unix.NS_GET_USERNS)
	if err != nil {
		t.Fatalf("open the user namespace of %s: %v", ns, err)
	}
	file := os.NewFile(uintptr(owner), "user namespace")
	defer func() { _ = file.Close() }()
	cmd := exec.Command(RequireBinary(t, "nsenter"), "--user=/proc/self/fd/3", "sh", "-c",
		"echo; exec cat")
	cmd.ExtraFiles = []*os.File{file}
	_, stdout, _ := startUntilEOF(t, cmd, cmd.Start)
	// The process writes a line when it is running.
	if _, err := io.ReadFull(stdout, make([]byte, 1)); err != nil {
		t.Fatalf("start a process in the user namespace of %s: %v", ns, err)
	}
}

// startUntilEOF calls start, which starts a process that ends at the end of its standard input.
// stop closes this input, and waits until the standard output and the process have ended. stop is
// also called at the end of the test.
func startUntilEOF(
	t testing.TB, cmd *exec.Cmd, start func() error,
) (stdin io.Writer, stdout io.Reader, stop func()) {
	t.Helper()
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := start(); err != nil {
		t.Fatal(err)
	}
	stop = func() {
		_ = in.Close()
		_, _ = io.Copy(io.Discard, out)
		_ = cmd.Wait()
	}
	t.Cleanup(stop)
	return in, out, stop
}
