package validation

import (
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
)

// startIn starts a process in the user namespace that owns the network namespace.
func startIn(t *testing.T, ns *netns.NS) {
	t.Helper()
	owner, err := unix.IoctlRetInt(ns.FD(), unix.NS_GET_USERNS)
	if err != nil {
		t.Fatal(err)
	}
	file := os.NewFile(uintptr(owner), "user namespace")
	defer file.Close()
	cmd := exec.Command(netnstest.RequireBinary(t, "nsenter"), "--user=/proc/self/fd/3", "sh", "-c",
		"echo; exec cat")
	cmd.ExtraFiles = []*os.File{file}
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = stdin.Close()
		_ = cmd.Wait()
	})
	// The process writes a line when it is running.
	if _, err := io.ReadFull(stdout, make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
}

func TestIDMap(t *testing.T) {
	m, err := parseIDMap(
		strings.NewReader("         0     100000       1000\n      2000       5000          1\n"))
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range []struct {
		inside  uint32
		outside int
		mapped  bool
	}{
		{0, 100000, true},
		{999, 100999, true},
		{1000, 0, false},
		{2000, 5000, true},
		{2001, 0, false},
	} {
		if got, ok := m.outside(row.inside); got != row.outside || ok != row.mapped {
			t.Errorf("%d inside is %d outside, %t; want %d, %t", row.inside, got, ok, row.outside,
				row.mapped)
		}
		if got := m.inside(row.outside); row.mapped && got != row.inside {
			t.Errorf("%d outside is %d inside, want %d", row.outside, got, row.inside)
		}
	}
	if got := m.inside(0); got != overflowID {
		t.Errorf("an unmapped id is mapped to %d", got)
	}
	var same idMap
	if got, ok := same.outside(7); got != 7 || !ok || same.inside(7) != 7 {
		t.Errorf("without a map, 7 is mapped to %d", got)
	}
	if _, err := parseIDMap(strings.NewReader("0 x 1\n")); err == nil {
		t.Error("no error for an invalid line")
	}
}
