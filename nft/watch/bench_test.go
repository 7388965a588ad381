package watch_test

import (
	"context"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
)

// BenchmarkChange measures the processor time of a change without and with a watcher. With a
// watcher, the kernel also sends a message, and the watcher reads it.
func BenchmarkChange(b *testing.B) {
	b.Run("unwatched", func(b *testing.B) {
		c := newChanger(b, netnstest.New(b), 0)
		start := processorTime(b)
		for b.Loop() {
			c.commit(b)
		}
		b.ReportMetric(float64(processorTime(b)-start)/float64(b.N), "cpu-ns/op")
	})
	b.Run("watched", func(b *testing.B) {
		agent, pod := netnstest.New(b), netnstest.New(b)
		w := open(b, agent)
		add(b, w, pod)
		c := newChanger(b, pod, 0)
		nextEvent(b, w)
		start, changes, reported := processorTime(b), 0, 0
		for b.Loop() {
			c.commit(b)
			changes++
			// Limit the queued messages to the capacity of the buffer.
			for changes-reported >= 1000 {
				reported += nextEvent(b, w).Count
			}
		}
		b.ReportMetric(float64(processorTime(b)-start)/float64(b.N), "cpu-ns/op")
	})
}

// BenchmarkAdd measures Add for a namespace that already has an id.
func BenchmarkAdd(b *testing.B) {
	w, pod := open(b, netnstest.New(b)), netnstest.New(b)
	for b.Loop() {
		add(b, w, pod)
	}
}

// BenchmarkFlood measures the number of events per second when a pod changes its rules at the
// maximum rate.
func BenchmarkFlood(b *testing.B) {
	agent, pod := netnstest.New(b), netnstest.New(b)
	w := open(b, agent)
	add(b, w, pod)
	c := newChanger(b, pod, 0)
	ctx, cancel := context.WithCancel(context.Background())
	count := make(chan int)
	go func() {
		n := 0
		for {
			if _, err := w.Next(ctx); err != nil {
				count <- n
				return
			}
			n++
		}
	}()
	start := time.Now()
	for b.Loop() {
		c.commit(b)
	}
	cancel()
	b.ReportMetric(float64(<-count)/time.Since(start).Seconds(), "events/s")
}

// processorTime returns the processor time of the process in ns.
func processorTime(t testing.TB) int64 {
	t.Helper()
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return u.Utime.Nano() + u.Stime.Nano()
}
