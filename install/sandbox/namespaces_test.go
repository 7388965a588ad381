package sandbox_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/sluice-mesh/sluice/install/sandbox"
	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
)

// TestNamespaces checks that each network namespace of the node's processes is opened once, except
// the namespaces of the node and of the calling process.
func TestNamespaces(t *testing.T) {
	proc, host, first, second := t.TempDir(), netnstest.New(t), netnstest.New(t), netnstest.New(t)
	own := "/proc/thread-self/ns/net"
	path := func(ns *netns.NS) string { return fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), ns.FD()) }
	for pid, target := range map[string]string{
		"1": path(host), "2": own, "3": path(host), "4": "/proc/ended", "7": path(first),
		"8": path(first), "9": path(second),
	} {
		dir := filepath.Join(proc, pid, "ns")
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(target, filepath.Join(dir, "net")); err != nil {
			t.Fatal(err)
		}
	}
	got, err := sandbox.Namespaces(proc)
	if err != nil {
		t.Error(err)
	}
	opened := map[netns.ID]int{}
	for _, ns := range got {
		opened[ns.ID()]++
		_ = ns.Close()
	}
	if len(got) != 2 || opened[first.ID()] != 1 || opened[second.ID()] != 1 {
		t.Errorf("namespaces %v, want %v and %v", opened, first.ID(), second.ID())
	}
	if err := os.RemoveAll(filepath.Join(proc, "1")); err != nil {
		t.Fatal(err)
	}
	if got, err := sandbox.Namespaces(proc); err == nil || len(got) > 0 {
		t.Errorf("without the node's namespace: %d namespaces, error %v; want an error", len(got), err)
	}
}
