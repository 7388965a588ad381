package main

import (
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-mesh/sluice/nft"
	"github.com/sluice-mesh/sluice/nft/testbed"
	"github.com/sluice-mesh/sluice/rules"
)

const (
	// replacements is the number of replacements of the ruleset under load.
	replacements = 100
	// connectionsBetween is the minimum number of connections between two replacements.
	connectionsBetween = 10
)

// results counts the results of the connections under load.
type results struct {
	opened, captured, leaked, failed atomic.Int64

	// ended receives a value when a connection ends, if a goroutine waits for the value.
	ended chan struct{}

	mu              sync.Mutex
	lastNotCaptured string // the last connection that was not captured, or its error
}

// rowsUnderLoad are the calls that are repeated under load: outbound and inbound connections.
var rowsUnderLoad = []row{capturedRows[0], capturedRows[3]}

// changeUnderLoad excludes and includes a prefix in turn, while connections are opened as fast as
// possible.
func changeUnderLoad(p *printer, network *testbed.Network) error {
	excluded := netip.MustParsePrefix("192.0.2.0/24")
	changed := sidecar()
	changed.OutboundExcludeCIDRs = []netip.Prefix{excluded}
	excluding, including := rules.MustCompile(changed), rules.MustCompile(sidecar())
	p.printHeading("One parameter changed under load: %s excluded, and included again", excluded)

	if _, err := nft.Apply(network.Pod, excluding); err != nil {
		return err
	}
	destination := endpoints(80, netip.MustParseAddr("192.0.2.7"))
	if err := (row{
		app, "tcp", destination, "excluded", by(testbed.Outside),
	}).show(p, network, excluding); err != nil {
		return err
	}
	t := &results{ended: make(chan struct{})}
	stop := t.start(network)
	times, err := t.replace(network, []rules.Ruleset{including, excluding})
	stop()
	if err != nil {
		return err
	}
	slices.Sort(times)
	p.printLine("   %d replacements, median %.2f ms, slowest %.2f ms", len(times),
		milliseconds(times[len(times)/2]), milliseconds(times[len(times)-1]))
	p.printResult(t.leaked.Load()+t.failed.Load() == 0,
		fmt.Sprintf("%d connections opened meanwhile: %d captured, %d past the proxy, %d failed",
			t.opened.Load(), t.captured.Load(), t.leaked.Load(), t.failed.Load()),
		"all captured; the last exception was "+t.lastNotCaptured)

	if _, err := nft.Apply(network.Pod, including); err != nil {
		return err
	}
	return row{
		app, "tcp", destination, "included again", by(testbed.Outbound, testbed.Outside),
	}.show(p, network, including)
}

// replace applies the rulesets in turn, with at least connectionsBetween connections before each
// replacement, and returns the duration of each replacement.
func (t *results) replace(
	network *testbed.Network, rulesets []rules.Ruleset,
) ([]time.Duration, error) {
	var times []time.Duration
	for i := range replacements {
		for range connectionsBetween {
			<-t.ended
		}
		start := time.Now()
		result, err := nft.Apply(network.Pod, rulesets[i%len(rulesets)])
		if err != nil {
			return nil, err
		}
		if result.Outcome != nft.Replaced {
			return nil, fmt.Errorf("replacement %d: the ruleset is %s, not replaced", i+1,
				result.Outcome)
		}
		times = append(times, time.Since(start))
	}
	return times, nil
}

// start opens connections until the returned function is called. It calls all destinations of
// rowsUnderLoad at the same time, and opens one connection after the other to each destination.
func (t *results) start(network *testbed.Network) (stop func()) {
	var callers sync.WaitGroup
	var stopped atomic.Bool
	for _, r := range rowsUnderLoad {
		for _, to := range r.to {
			c := r.call(to)
			callers.Go(func() {
				for !stopped.Load() {
					t.count(r, c, network)
					select {
					case t.ended <- struct{}{}:
					default:
					}
				}
			})
		}
	}
	return func() {
		stopped.Store(true)
		callers.Wait()
	}
}

// count makes a call and counts its result.
func (t *results) count(r row, c testbed.Call, network *testbed.Network) {
	t.opened.Add(1)
	a, err := network.Dial(c)
	switch {
	case err == nil && r.asExpected(a, c.To):
		t.captured.Add(1)
		return
	case err == nil && a.Outcome == testbed.Answered && a.By != r.servers[0]:
		t.leaked.Add(1)
	default:
		t.failed.Add(1)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.lastNotCaptured = fmt.Sprintf("%s: %s", c, a)
	if err != nil {
		t.lastNotCaptured = err.Error()
	}
}
