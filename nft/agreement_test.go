package nft_test

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/sluice-mesh/sluice/nft"
	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
	"github.com/sluice-mesh/sluice/nft/testbed"
	"github.com/sluice-mesh/sluice/rules"
)

// The bounds of the number of calls for each ruleset. Applying a ruleset takes as long as several
// calls.
const minCalls, maxCalls = 10, 25

// TestModelAgreesWithKernel compares the server that answers a call with the server that the model
// predicts (diff.Explain), for random parameters and random calls. A failure prints the seed and
// writes a file under testdata/rapid, which the next run tries first. SLUICE_LONG=1 in the
// environment increases the number of rulesets.
func TestModelAgreesWithKernel(t *testing.T) {
	netnstest.RequireIDs(t, 1337, 1337)
	t.Parallel()
	rounds := 1
	if os.Getenv("SLUICE_LONG") == "1" {
		rounds = 10
	}
	for _, mode := range []rules.Mode{rules.ModeRedirect, rules.ModeTProxy} {
		for round := range rounds {
			t.Run(fmt.Sprintf("%s/%d", mode, round+1), func(t *testing.T) {
				t.Parallel()
				calls, captured := 0, 0
				rapid.Check(t, func(t *rapid.T) {
					s := randomScenario{
						redirect:    randomRedirect(t, mode),
						transparent: rapid.IntRange(0, 9).Draw(t, "transparent unless 9") < 9,
					}
					s.calls = rapid.SliceOfN(anyCall(s.redirect), minCalls,
						maxCalls).Draw(t, "calls")
					disagreement, n := s.check(t)
					if disagreement != "" {
						t.Fatal(disagreement)
					}
					calls, captured = calls+len(s.calls), captured+n
				})
				t.Logf("%d calls, %d of them captured", calls, captured)
				// The share of captured calls varies widely from ruleset to ruleset.
				if captured == 0 || captured == calls {
					t.Errorf("%d of %d calls were captured, want some but not all", captured, calls)
				}
			})
		}
	}
}

// A randomScenario contains the parameters of a ruleset and the calls to make.
type randomScenario struct {
	redirect    rules.Redirect
	transparent bool // the proxy listens transparently
	calls       []testbed.Call
}

// check makes the calls. disagreement describes the first call whose result differs from the
// model's prediction, and is empty if there is none. captured is the number of captured calls.
func (s randomScenario) check(t *rapid.T) (disagreement string, captured int) {
	b, err := testbed.New(testbed.Options{Interface: secondInterface})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	r := s.redirect
	err = b.StartProxy(testbed.ProxyOptions{
		Owner:       rules.Owner{UID: r.ProxyUIDs[0].First, GID: r.ProxyGIDs[0].First},
		Transparent: s.transparent, Outbound: r.ProxyPort, Inbound: r.InboundCapturePort,
		Tunnel: r.TunnelPort,
	})
	if err = errors.Join(err, b.StartApplication(testbed.ApplicationOwner)); err != nil {
		t.Fatal(err)
	}
	rs := rules.MustCompile(r)
	_, err = nft.Apply(b.Pod, rs)
	if err = errors.Join(err, b.WaitForRouting(rs.Routing)); err != nil {
		t.Fatal(err)
	}
	known := connections{}
	for _, c := range s.calls {
		predicted, trace := b.Predict(&rs, c, netip.AddrPort{})
		if c.Transparent && trace.Outcome.Redirect != 0 {
			// The model does not predict whether routing delivers a packet from another host to
			// 127.0.0.1.
			continue
		}
		c.Timeout = callTimeout
		if predicted.Outcome == testbed.Silent {
			c.Timeout = 60 * time.Millisecond
		}
		got, err := b.Dial(c)
		if err != nil {
			t.Fatal(err)
		}
		predicted, trace = b.Predict(&rs, c, got.Source)
		predicted = known.first(c, got.Source, trace.Outcome.Zone, predicted)
		if got.Outcome == testbed.Silent && predicted.Outcome != testbed.Silent &&
			c.Timeout != callTimeout {
			// The call may have timed out because the machine is busy: try again with a longer
			// timeout.
			c.Local, c.Timeout = got.Source, callTimeout
			if got, err = b.Dial(c); err != nil {
				t.Fatal(err)
			}
		}
		if !got.Agrees(predicted) {
			return fmt.Sprintf("%s\n\tgot       %s\n\tpredicted %s\n%s\n%s", c, got, predicted,
				formatTrace(trace), rs), 0
		}
		if err := checkAddrs(got, c, trace.Outcome); err != nil {
			return fmt.Sprintf("%s: %s: %v\n%s\n%s", c, got, err, formatTrace(trace), rs), 0
		}
		if trace.Outcome.Captured() {
			captured++
		}
	}
	return "", captured
}

// connections contains the predictions for the connections that conntrack knows: the first datagram
// between two addresses in a zone determines the destination of all later datagrams, regardless of
// the sending process. TCP connections are not affected, because each has its own source port.
type connections map[connection]testbed.Answer

type connection struct {
	from, to netip.AddrPort
	zone     uint16
}

// first returns the prediction for the first call of the connection of c. If c is this first call,
// first records and returns predicted.
func (known connections) first(
	c testbed.Call, source netip.AddrPort, zone uint16, predicted testbed.Answer,
) testbed.Answer {
	if c.Network != "udp" {
		return predicted
	}
	id := connection{source, c.To, zone}
	if earlier, ok := known[id]; ok {
		return earlier
	}
	known[id] = predicted
	return predicted
}
