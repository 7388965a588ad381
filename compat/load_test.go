package compat_test

import (
	"fmt"
	"net/netip"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/sluice-mesh/sluice/compat"
	"github.com/sluice-mesh/sluice/nft"
	"github.com/sluice-mesh/sluice/nft/istio/istiotest"
	"github.com/sluice-mesh/sluice/nft/testbed"
	"github.com/sluice-mesh/sluice/rules"
	"github.com/sluice-mesh/sluice/rules/rulestest"
)

// loadFlows lists flows that the same listener receives in both modes.
var loadFlows = []flow{
	{"app", "tcp", "world:80", "outbound", "outbound"},
	{"in", "tcp", "pod:8080", "inbound", "inbound"},
	{"proxy", "tcp", "pod:8080", "inbound", "inbound"},
}

// rulesetSequence is a list of rulesets, each with its backend. Consecutive rulesets, and the last
// and the first, differ in the mode, the backend or other parameters.
type rulesetSequence []struct {
	backend compat.BackendName
	change  []func(*rules.Redirect)
}

func excludedCIDR(r *rules.Redirect) {
	r.OutboundExcludeCIDRs = []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}
}

var changes = map[string]rulesetSequence{
	"mode": {
		{compat.BackendLegacy, nil}, {compat.BackendLegacy, []func(*rules.Redirect){tproxy}},
	},
	"mode and other parameters": {
		{compat.BackendLegacy, []func(*rules.Redirect){allDNS}},
		{compat.BackendLegacy, []func(*rules.Redirect){tproxy, excludedCIDR}},
		{compat.BackendLegacy, []func(*rules.Redirect){dropInvalid, excludedCIDR}},
		{compat.BackendLegacy, []func(*rules.Redirect){tproxy, allDNS, dropInvalid}},
	},
	"other parameters": {
		{compat.BackendLegacy, []func(*rules.Redirect){tproxy}},
		{compat.BackendLegacy, []func(*rules.Redirect){tproxy, excludedCIDR, allDNS, dropInvalid}},
		{compat.BackendLegacy, []func(*rules.Redirect){tproxy, allDNS}},
	},
	"mode, nft": {
		{compat.BackendNFT, nil}, {compat.BackendNFT, []func(*rules.Redirect){tproxy}},
	},
	"backend, redirect": {
		{compat.BackendLegacy, nil}, {compat.BackendNFT, nil},
	},
	"backend, tproxy": {
		{compat.BackendLegacy, []func(*rules.Redirect){tproxy}},
		{compat.BackendNFT, []func(*rules.Redirect){tproxy}},
	},
}

// While the rules change, no connection that both rulesets capture bypasses the proxy, is refused
// or hangs, and established connections continue.
func TestChangesUnderLoad(t *testing.T) {
	t.Parallel() // the subtests are not parallel, because each uses the maximum load
	for name, list := range changes {
		t.Run(name, func(t *testing.T) {
			network := startNetwork(t, testbed.Options{}, testbed.ProxyOwner)
			list.applyUnderLoad(t, network, times(rulestest.Trials(16, os.Getenv), 200))
		})
	}
}

// TestChangesWhilePacketsAreInAHook is TestChangesUnderLoad with packets that remain in a hook for
// the whole change.
func TestChangesWhilePacketsAreInAHook(t *testing.T) {
	t.Parallel() // see TestChangesUnderLoad
	for name, list := range changes {
		t.Run(name, func(t *testing.T) {
			network := startNetwork(t, testbed.Options{}, testbed.ProxyOwner)
			istiotest.Run(t, network.Pod, slowChains(), "nft", "-f", "-")
			list.applyUnderLoad(t, network, times(rulestest.Trials(8, os.Getenv), 200))
		})
	}
}

// slowChains returns a table whose chains delay the first packet of a connection for about five
// milliseconds before Sluice's chains, and again between Sluice's mangle and nat chains.
func slowChains() string {
	var b strings.Builder
	b.WriteString("table inet slow {\nchain lookups {\n")
	b.WriteString(strings.Repeat("fib daddr type blackhole\n", 200))
	b.WriteString("}\nchain slow {\n")
	b.WriteString(strings.Repeat("jump lookups\n", 50))
	b.WriteString("}\n")
	for _, hook := range []string{"prerouting", "output"} {
		for i, priority := range []int{-310, -125} {
			fmt.Fprintf(&b, "chain %s-%d {\ntype filter hook %s priority %d\n", hook, i, hook,
				priority)
			b.WriteString("tcp flags & (syn|ack) == syn jump slow\n}\n")
		}
	}
	return b.String() + "}\n"
}

// applyUnderLoad applies the rulesets in turn, n times and each at least once, while connections
// are opened.
func (list rulesetSequence) applyUnderLoad(t *testing.T, network *testbed.Network, n int) {
	apply := func(i int) compat.Result {
		c := list[i%len(list)]
		result, err := chosen(t,
			c.backend).Apply(network.Pod, compiled(t, append(c.change, dual)...), compat.Snapshot{})
		if err != nil {
			t.Fatal(err)
		}
		return result
	}
	apply(0)
	load := newLoad(t, network)
	for i := range max(n, len(list)) {
		load.wait(len(loadFlows))
		if result := apply(i + 1); result.Outcome != nft.Replaced {
			t.Errorf("change %d: outcome %s, want %s", i+1, result.Outcome, nft.Replaced)
		}
	}
	load.stop()
	t.Logf("%d connections", load.opened)
}

// A load opens connections as fast as possible, one after the other for each call of loadFlows.
// After each connection it sends data on one lasting connection for the call. It does not send data
// continuously, because this would take the processor from the changes under test.
type load struct {
	t       *testing.T
	stopped atomic.Bool
	callers sync.WaitGroup
	mutex   sync.Mutex
	opened  int
	failed  bool
	changed *sync.Cond // opened or failed has changed
}

func newLoad(t *testing.T, network *testbed.Network) *load {
	l := &load{t: t}
	l.changed = sync.NewCond(&l.mutex)
	for _, f := range loadFlows {
		for _, c := range f.calls() {
			c.Timeout = answerTimeout
			lasting, err := network.Open(c)
			if err != nil {
				t.Fatal(err)
			}
			l.callers.Go(func() {
				defer lasting.Close()
				for !l.stopped.Load() {
					answer, err := network.Dial(c)
					if err != nil || string(answer.By) != f.redirect {
						t.Errorf("%s: %s, error %v; want an answer by %s", c, answer, err, f.redirect)
						l.change(func() { l.failed = true })
						return
					}
					l.change(func() { l.opened++ })
					if answer := lasting.Ask(); string(answer.By) != f.redirect {
						t.Errorf("%s: an established connection is now answered by %s, want %s", c,
							answer, f.redirect)
						l.change(func() { l.failed = true })
						return
					}
				}
			})
		}
	}
	return l
}

// change calls the function with the mutex locked, and wakes up wait.
func (l *load) change(change func()) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	change()
	l.changed.Broadcast()
}

// wait waits until n more connections were opened, or until a connection fails.
func (l *load) wait(n int) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	for before := l.opened; l.opened < before+n && !l.failed; {
		l.changed.Wait()
	}
}

func (l *load) stop() {
	l.stopped.Store(true)
	l.callers.Wait()
}
