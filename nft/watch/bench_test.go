package watch_test

import (
	"context"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
)

// BenchmarkChange is the processor time of a change, unheard and heard: what is heard costs the
// kernel a message, and us to read it.
func BenchmarkChange(b *testing.B) {
	b.Run("unheard", func(b *testing.B) {
		c := change(b, netnstest.New(b), 0)
		start := processorTime(b)
		for b.Loop() {
			c.commit(b)
		}
		b.ReportMetric(float64(processorTime(b)-start)/float64(b.N), "cpu-ns/op")
	})
	b.Run("heard", func(b *testing.B) {
		agent, pod := netnstest.New(b), netnstest.New(b)
		w := open(b, agent)
		add(b, w, pod)
		c := change(b, pod, 0)
		next(b, w)
		start, changes, heard := processorTime(b), 0, 0
		for b.Loop() {
			c.commit(b)
			// More would not fit into the buffer.
			for changes++; changes-heard >= 1000; {
				heard += next(b, w).Count
			}
		}
		b.ReportMetric(float64(processorTime(b)-start)/float64(b.N), "cpu-ns/op")
	})
}

// BenchmarkAdd is what it costs to hear of one more namespace.
func BenchmarkAdd(b *testing.B) {
	w, pod := open(b, netnstest.New(b)), netnstest.New(b)
	for b.Loop() {
		add(b, w, pod)
	}
}

// BenchmarkFlood is how many events become of it when a pod changes its rules as fast as one
// processor can.
func BenchmarkFlood(b *testing.B) {
	agent, pod := netnstest.New(b), netnstest.New(b)
	w := open(b, agent)
	add(b, w, pod)
	c := change(b, pod, 0)
	ctx, cancel := context.WithCancel(context.Background())
	told := make(chan int)
	go func() {
		n := 0
		for {
			if _, err := w.Next(ctx); err != nil {
				told <- n
				return
			}
			n++
		}
	}()
	began := time.Now()
	for b.Loop() {
		c.commit(b)
	}
	cancel()
	b.ReportMetric(float64(<-told)/time.Since(began).Seconds(), "events/s")
}

// processorTime is what the process has used, in ns.
func processorTime(t testing.TB) int64 {
	t.Helper()
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return u.Utime.Nano() + u.Stime.Nano()
}
