package scale

import (
	"testing/synctest"
	"time"

	"github.com/sluice-mesh/sluice/e2e/bench/report"
)

// A phase is a part of the run, with the counters at its start.
type phase struct {
	report.Phase
	fleet           *fleet
	begin           time.Time
	requests, dials int
	received, sent  int64
}

// begin starts a phase.
func (f *fleet) begin(name, description string) *phase {
	synctest.Wait()
	f.meter.mu.Lock()
	defer f.meter.mu.Unlock()
	return &phase{
		Phase: report.Phase{Name: name, Description: description, Requests: map[string]int{}},
		fleet: f, begin: time.Now(), requests: len(f.server.Requests()), dials: len(f.meter.dials),
		received: f.meter.received.Load(), sent: f.meter.sent.Load(),
	}
}

// end returns the counts since the start of the phase.
func (p *phase) end() report.Phase {
	synctest.Wait()
	f := p.fleet
	p.Seconds = time.Since(p.begin).Seconds()
	p.PerSecond = make([]int, int(p.Seconds)+1)
	for _, r := range f.server.Requests()[p.requests:] {
		p.Requests[r.Kind()]++
		p.PerSecond[int(r.Time.Sub(p.begin).Seconds())]++
	}
	f.meter.mu.Lock()
	defer f.meter.mu.Unlock()
	dials := make([]int, len(p.PerSecond))
	for _, at := range f.meter.dials[p.dials:] {
		dials[int(at.Sub(p.begin).Seconds())]++
		p.Connections++
	}
	for i := range dials {
		p.PeakConnections = max(p.PeakConnections, dials[i])
	}
	p.Received, p.Sent = f.meter.received.Load()-p.received, f.meter.sent.Load()-p.sent
	return p.Phase
}
