package nft_test

import (
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/sluice-mesh/sluice/nft"
	"github.com/sluice-mesh/sluice/nft/testbed"
	"github.com/sluice-mesh/sluice/rules"
	"github.com/sluice-mesh/sluice/rules/rulestest"
)

// replacements returns the number of replacements of rulesets under load.
func replacements() int {
	if os.Getenv("SLUICE_LONG") == "1" {
		return 300
	}
	return 30
}

func TestReplacementsUnderLoadNeitherBypassTheProxyNorFail(t *testing.T) {
	for _, mode := range []rules.Mode{rules.ModeRedirect, rules.ModeTProxy} {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			network := startNetwork(t, testbed.Options{}, mode, nil)
			r := sidecar(mode)
			rulesets := []rules.Ruleset{rules.MustCompile(r)}
			r.OutboundExcludeCIDRs = []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}
			rulesets = append(rulesets, rules.MustCompile(r))
			r.InboundExcludePorts, r.OutboundExcludePorts = rules.Singles[uint16](15020, 15021),
				rules.Singles[uint16](5432)
			r.DropInvalid = true
			rulesets = append(rulesets, rules.MustCompile(r))
			if _, err := nft.Apply(network.Pod, rulesets[0]); err != nil {
				t.Fatal(err)
			}
			oldConnections := open(t, network, callTimeout, whenCaptured)

			var opened atomic.Int64
			var stop atomic.Bool
			var callers sync.WaitGroup
			for i, f := range flows {
				// Each old connection sends requests until the replacements end.
				callers.Go(func() {
					for !stop.Load() && !t.Failed() {
						if answer := oldConnections[i].Ask(); answer.By != f.captured {
							t.Errorf("%s, older connection: %s, want an answer by %s", f.name,
								answer, f.captured)
						}
					}
				})
			}
			for _, f := range flows {
				call := f.call
				call.Timeout = callTimeout
				callers.Go(func() {
					for !stop.Load() {
						opened.Add(1)
						answer, err := network.Dial(call)
						if err != nil || answer.By != f.captured {
							t.Errorf("%s: %s, error %v, want an answer by %s", f.name, answer, err,
								f.captured)
							return
						}
					}
				})
			}
			for i := range replacements() {
				// Wait for new connections between any two replacements.
				before := opened.Load()
				rulestest.Eventually(t, "new connections are opened", func() bool {
					return opened.Load() >= before+int64(len(flows)) || t.Failed()
				})
				result, err := nft.Apply(network.Pod, rulesets[(i+1)%len(rulesets)])
				if err != nil || result.Outcome != nft.Replaced {
					t.Errorf("replacement %d: %+v, error %v, want %s", i+1, result, err, nft.Replaced)
				}
			}
			stop.Store(true)
			callers.Wait()
			t.Logf("%d connections during %d replacements", opened.Load(), replacements())
		})
	}
}
