package bench

import (
	"errors"
	"fmt"
	"runtime"
	"sync"
	"time"

	"github.com/sluice-mesh/sluice/e2e/bench/report"
	"github.com/sluice-mesh/sluice/nft/netns"
)

// restartPods is the number of pods of the node.
const restartPods = 250

// restartRows returns the row that programs all pods of a node in one process.
func restartRows() []Row {
	s := Sidecar{}
	return []Row{{
		ID: "restart", Topic: "Node restart",
		Name:         fmt.Sprintf("%d new pods, one goroutine per core", restartPods),
		RoundsFactor: 0.5,
		Plotted:      report.Wall,
		Goals: []report.Goal{
			{Entry: coldName, Quantity: report.Wall, Others: []string{rawName}, Factor: 1.5},
			{Entry: coldName, Quantity: report.Kept, Limit: 100e3},
		},
		Candidates: []Candidate{
			coldWriter.candidate(s, nodeTask), cachedWriter.candidate(s, nodeTask),
			rawWriter.candidate(s, nodeTask),
		},
	}}
}

// nodeTask returns a task that writes the rules of all pods of a node.
func nodeTask(apply applier) (Task, error) {
	pods := make([]*netns.NS, restartPods)
	undo := func() {
		for _, ns := range pods {
			_ = ns.Close()
		}
	}
	for i := range pods {
		var err error
		if pods[i], err = NewPod(); err != nil {
			undo()
			return Task{}, err
		}
	}
	return Task{
		Do:    func() (Sample, error) { return programAll(pods, apply) },
		Check: func() error { return checkRedirected(pods[restartPods-1], true) },
		Undo:  undo,
	}, nil
}

// programAll programs the pods with one goroutine for each core.
func programAll(pods []*netns.NS, apply applier) (Sample, error) {
	heapBefore := heapSize()
	begin := time.Now()
	next := make(chan *netns.NS)
	errs := make([]error, runtime.GOMAXPROCS(0))
	var group sync.WaitGroup
	for i := range errs {
		group.Go(func() {
			for ns := range next {
				errs[i] = errors.Join(errs[i], apply(ns))
			}
		})
	}
	for _, ns := range pods {
		next <- ns
	}
	close(next)
	group.Wait()
	duration := time.Since(begin)
	return Sample{
		report.Wall: duration.Seconds(), report.Kept: max(heapSize()-heapBefore, 0),
	}, errors.Join(errs...)
}

// heapSize returns the size of the heap in use, in bytes.
func heapSize() float64 {
	runtime.GC()
	runtime.GC() // the second collection frees the contents of sync.Pool
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc)
}
