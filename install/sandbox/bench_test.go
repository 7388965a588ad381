package sandbox_test

import (
	"fmt"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/install/sandbox"
	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
)

// BenchmarkFind measures one call for all pods of a node.
func BenchmarkFind(b *testing.B) {
	for _, count := range []int{250, 1000} {
		n := newNode(b)
		recorded := createPods(b, count, func(p sandbox.Pod, ns *netns.NS, i int) {
			n.record(b, p, fmt.Sprintf("r%d", i), n.link(b, ns, fmt.Sprintf("r%d", i)))
		})
		cached := createPods(b, count, func(p sandbox.Pod, ns *netns.NS, i int) {
			n.result(b, p, fmt.Sprintf("c%d", i), n.link(b, ns, fmt.Sprintf("c%d", i)))
		})
		running := createPods(b, count, func(p sandbox.Pod, ns *netns.NS, i int) {
			if i < 100 { // a process for each pod would need too much memory
				n.start(b, ns, cgroup(b, anyHierarchy(b), group(p)))
			}
		})[:100]
		for name, pods := range map[string][]sandbox.Pod{
			"recorded": recorded, "cached by the runtime": cached, "running": running,
		} {
			b.Run(fmt.Sprintf("%d pods, %s, new finder", len(pods), name), func(b *testing.B) {
				benchmark(b, pods, n.finder)
			})
			f := n.finder()
			f.Find(b.Context(), pods)
			b.Run(fmt.Sprintf("%d pods, %s, cached by the finder", len(pods), name), func(b *testing.B) {
				benchmark(b, pods, func() *sandbox.Finder { return f })
			})
		}
		f := n.finder()
		f.Find(b.Context(), append(recorded, cached...))
		b.Run(fmt.Sprintf("1 pod without a sandbox, with %d cached", 2*count), func(b *testing.B) {
			pods, start := []sandbox.Pod{newPod()}, processorTime(b)
			for b.Loop() {
				f.Find(b.Context(), pods)
			}
			b.ReportMetric(float64(processorTime(b)-start)/1000/float64(b.N), "cpu-µs/op")
		})
	}
}

// benchmark measures Find for all pods. It calls finder before each call of Find.
func benchmark(b *testing.B, pods []sandbox.Pod, finder func() *sandbox.Finder) {
	b.Helper()
	start := processorTime(b)
	for b.Loop() {
		if found, missing := finder().Find(b.Context(), pods); len(missing) > 0 {
			b.Fatalf("found %d of %d pods, want all; missing %v", len(found), len(pods), missing)
		}
	}
	b.ReportMetric(float64(processorTime(b)-start)/1000/float64(b.N)/float64(len(pods)),
		"cpu-µs/pod")
}

// processorTime returns the processor time of the process in ns.
func processorTime(b *testing.B) int64 {
	b.Helper()
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return u.Utime.Nano() + u.Stime.Nano()
}

// createPods creates pods, and calls place with each pod, a new namespace and the pod's index.
func createPods(b *testing.B, count int, place func(p sandbox.Pod, ns *netns.NS, i int)) []sandbox.Pod {
	b.Helper()
	pods := make([]sandbox.Pod, count)
	for i := range pods {
		pods[i] = newPod()
		place(pods[i], netnstest.New(b), i)
	}
	return pods
}
