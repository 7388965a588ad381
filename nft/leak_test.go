package nft

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
	"github.com/sluice-mesh/sluice/rules/rulestest"
)

// TestApplyLeaksNothing counts the resources of the process before and after many calls of Apply
// and Remove. It does not run in parallel with other tests.
func TestApplyLeaksNothing(t *testing.T) {
	netnstest.RequireRoot(t)
	round := func(i int) {
		ns, err := netns.New()
		if err != nil {
			t.Fatal(err)
		}
		defer ns.Close()
		setLoopbackUp(t, ns)
		want := example(examples[i%len(examples)].name)
		mustApply(t, ns, want, Created)
		mustApply(t, ns, want, Unchanged)
		if _, err := Apply(ns, rejectedRuleset()); err == nil {
			t.Fatal("the kernel accepted rejectedRuleset, want an error")
		}
		if _, err := Remove(ns); err != nil {
			t.Fatal(err)
		}
	}
	// The first calls start threads and the runtime's poller.
	for i := range 10 {
		round(i)
	}
	before := countResources(t)
	for i := range repetitions(40, 400) {
		round(i)
	}
	// Sockets are closed asynchronously, and the kernel destroys namespaces with a delay.
	var after resources
	rulestest.EventuallySucceeds(t, "release of the descriptors and namespaces", func() error {
		after = countResources(t)
		if after.descriptors > before.descriptors || after.namespaces > before.namespaces {
			return fmt.Errorf("%+v before, %+v after", before, after)
		}
		return nil
	})
	// The runtime does not end its threads.
	if after.threads > before.threads+10 {
		t.Errorf("%d threads before, %d after, want at most 10 more", before.threads, after.threads)
	}
}

func setLoopbackUp(t *testing.T, ns *netns.NS) {
	t.Helper()
	err := ns.Do(func() error {
		lo, err := netlink.LinkByName("lo")
		if err != nil {
			return err
		}
		return netlink.LinkSetUp(lo)
	})
	if err != nil {
		t.Fatal(err)
	}
}

// resources contains the number of resources of each kind that a process uses.
type resources struct{ descriptors, threads, namespaces int }

// countResources counts the resources of this process. The number of namespaces is the number of
// network namespaces to which descriptors and threads of the process refer.
func countResources(t *testing.T) resources {
	t.Helper()
	count := func(pattern string) int {
		files, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		return len(files)
	}
	seen := map[string]bool{}
	links, _ := filepath.Glob("/proc/self/task/*/ns/net")
	descriptors, _ := filepath.Glob("/proc/self/fd/*")
	for _, link := range append(links, descriptors...) {
		target, err := os.Readlink(link)
		if matched, _ := filepath.Match("net:*", target); err == nil && matched {
			seen[target] = true
		}
	}
	return resources{count("/proc/self/fd/*"), count("/proc/self/task/*"), len(seen)}
}

// TestApplyWithADescriptorAbove1023 covers a socket whose descriptor select(2) does not support.
func TestApplyWithADescriptorAbove1023(t *testing.T) {
	ns := netnstest.New(t)
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil || limit.Max < 2000 {
		t.Skipf("at most %d descriptors are allowed: raise the limit (ulimit -n)", limit.Max)
	}
	for fd := 0; fd < 1024; {
		var err error
		if fd, err = unix.FcntlInt(uintptr(ns.FD()), unix.F_DUPFD_CLOEXEC, 0); err != nil {
			t.Fatal(err)
		}
		defer unix.Close(fd)
	}
	withConn(t, ns, func(c *conn) error {
		if c.fd < 1024 {
			t.Errorf("descriptor %d, want at least 1024", c.fd)
		}
		return nil
	})
	rs := manyPrefixes(0, 2000)
	mustApply(t, ns, rs, Created)
	checkRuleset(t, ns, rs)
}
