package compat_test

import (
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/sluice-mesh/sluice/compat"
	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
)

// TestBackendsLeakNothing counts what the process holds, before and after many applications, moves,
// refusals and removals. It does not run beside other tests.
func TestBackendsLeakNothing(t *testing.T) {
	netnstest.RequireRoot(t)
	rs, refused := compiled(t, tproxy), refusedLast(t, tproxy)
	round := func(i int) {
		ns := withLoopbackDown(t)
		defer ns.Close()
		for _, e := range []compat.BackendName{
			backends[i%2], backends[(i+1)%2], compat.BackendAuto,
		} {
			b := chosen(t, e)
			if _, err := b.Apply(ns, rs, compat.Snapshot{}); err != nil {
				t.Fatal(err)
			}
			equal(t, b, ns, rs)
		}
		if _, err := compat.ApplyLegacy(ns, refused); err == nil {
			t.Fatal("not refused")
		}
		if _, err := chosen(t, compat.BackendAuto).Remove(ns); err != nil {
			t.Fatal(err)
		}
	}
	// The first ones start threads, and the runtime's poller, and probe.
	for i := range 10 {
		round(i)
	}
	before := holdings(t)
	for i := range times(30, 300) {
		round(i)
	}
	// Sockets are closed in the background, and the kernel takes its time with namespaces.
	after := holdings(t)
	for begin := time.Now(); after.descriptors > before.descriptors ||
		after.namespaces > before.namespaces; after = holdings(t) {
		if time.Since(begin) > 10*time.Second {
			t.Fatalf("%+v, then %+v", before, after)
		}
		runtime.Gosched()
	}
	// The runtime keeps threads that it has once needed.
	if after.threads > before.threads+10 {
		t.Errorf("threads: %d, then %d", before.threads, after.threads)
	}
}

// withLoopbackDown makes a namespace that the caller closes. IPv4 can be programmed there.
func withLoopbackDown(t *testing.T) *netns.NS {
	t.Helper()
	ns, err := netns.New()
	if err != nil {
		t.Fatal(err)
	}
	return ns
}

// held is what a process, and the kernel for it, holds.
type held struct{ descriptors, threads, namespaces int }

// holdings counts. Namespaces are those that the process's descriptors and threads keep.
func holdings(t *testing.T) held {
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
	return held{len(glob("/proc/self/fd/*")), len(glob("/proc/self/task/*")), len(seen)}
}
