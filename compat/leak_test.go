package compat_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/sluice-mesh/sluice/compat"
	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
	"github.com/sluice-mesh/sluice/rules/rulestest"
)

// TestBackendsLeakNothing counts the resources of the process before and after many calls of Apply
// and Remove, including backend changes and errors. It does not run in parallel with other tests.
func TestBackendsLeakNothing(t *testing.T) {
	netnstest.RequireRoot(t)
	rs, rejected := compiled(t, tproxy), withRejectedLastTable(t, tproxy)
	round := func(i int) {
		ns := withLoopbackDown(t)
		defer ns.Close()
		for _, backendName := range []compat.BackendName{
			backends[i%2], backends[(i+1)%2], compat.BackendAuto,
		} {
			b := chosen(t, backendName)
			if _, err := b.Apply(ns, rs, compat.Snapshot{}); err != nil {
				t.Fatal(err)
			}
			wantInSync(t, b, ns, rs)
		}
		if _, err := compat.ApplyLegacy(ns, rejected); err == nil {
			t.Fatal("ApplyLegacy accepted tables that the kernel must reject")
		}
		if _, err := chosen(t, compat.BackendAuto).Remove(ns); err != nil {
			t.Fatal(err)
		}
	}
	// The first rounds start threads and the runtime's poller, and probe the kernel.
	for i := range 10 {
		round(i)
	}
	before := countResources(t)
	for i := range times(30, 300) {
		round(i)
	}
	// The kernel closes sockets and destroys namespaces asynchronously.
	var after resources
	rulestest.EventuallySucceeds(t, "no more descriptors and namespaces than before", func() error {
		after = countResources(t)
		if after.descriptors > before.descriptors || after.namespaces > before.namespaces {
			return fmt.Errorf("%+v before, %+v after", before, after)
		}
		return nil
	})
	// The runtime keeps the threads that it has created.
	if after.threads > before.threads+10 {
		t.Errorf("%d threads before, %d after, want at most 10 more", before.threads, after.threads)
	}
}

// withLoopbackDown creates a namespace in which lo is down. Rules and routes of IPv4 do not need
// lo. The caller closes the namespace.
func withLoopbackDown(t *testing.T) *netns.NS {
	t.Helper()
	ns, err := netns.New()
	if err != nil {
		t.Fatal(err)
	}
	return ns
}

// resources contains the numbers of resources that a process uses.
type resources struct{ descriptors, threads, namespaces int }

// countResources counts the resources of this process. Its namespaces are the namespaces to which
// its descriptors and threads refer.
func countResources(t *testing.T) resources {
	t.Helper()
	glob := func(pattern string) []string {
		files, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		return files
	}
	seen := map[string]bool{}
	for _, link := range append(glob("/proc/self/task/*/ns/net"), glob("/proc/self/fd/*")...) {
		target, err := os.Readlink(link)
		if matched, _ := filepath.Match("net:*", target); err == nil && matched {
			seen[target] = true
		}
	}
	return resources{len(glob("/proc/self/fd/*")), len(glob("/proc/self/task/*")), len(seen)}
}
