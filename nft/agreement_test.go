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

// How many calls are tried with each ruleset: making it takes as long as several of them.
const fewestCalls, mostCalls = 10, 25

// The model says what the kernel does: random parameters, random calls, and what rules.Explain says
// of each against who answers it. A failure prints the seed and writes a file under testdata/rapid,
// which the next run tries first. With SLUICE_LONG in the environment there are ten times as many.
func TestModelAgreesWithKernel(t *testing.T) {
	netnstest.RequireIDs(t, 1337, 1337)
	t.Parallel()
	rounds := 1
	if os.Getenv("SLUICE_LONG") != "" {
		rounds = 10
	}
	for _, mode := range []rules.Mode{rules.ModeRedirect, rules.ModeTProxy} {
		for round := range rounds {
			t.Run(fmt.Sprintf("%s/%d", mode, round+1), func(t *testing.T) {
				t.Parallel()
				cases, captured := 0, 0
				rapid.Check(t, func(t *rapid.T) {
					c := agreement{redirect: drawRedirect(t, mode), transparent: rapid.IntRange(0, 9).Draw(t, "opaque") < 9}
					c.calls = rapid.SliceOfN(anyCall(c.redirect), fewestCalls, mostCalls).Draw(t, "calls")
					disagreement, n := c.check(t)
					if disagreement != "" {
						t.Fatal(disagreement)
					}
					cases, captured = cases+len(c.calls), captured+n
				})
				t.Logf("%d calls, %d of them captured", cases, captured)
				if captured < cases/10 || captured > cases*9/10 {
					t.Errorf("of %d calls %d were captured: the choice of calls is lopsided", cases, captured)
				}
			})
		}
	}
}

// agreement is one ruleset and the calls to be tried with it.
type agreement struct {
	redirect    rules.Redirect
	transparent bool // the proxy listens transparently
	calls       []testbed.Call
}

// check makes the calls; it describes the first of which the kernel made something else than the
// model says, and counts those that were captured.
func (a agreement) check(t *rapid.T) (disagreement string, captured int) {
	b, err := testbed.New(testbed.Options{Interface: secondInterface})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	r := a.redirect
	err = b.StartProxy(testbed.ProxyOptions{
		Owner:       rules.Owner{UID: r.ProxyUIDs[0].First, GID: r.ProxyGIDs[0].First},
		Transparent: a.transparent, Outbound: r.ProxyPort, Inbound: r.InboundCapturePort, Tunnel: r.TunnelPort,
	})
	if err = errors.Join(err, b.StartApplication(testbed.ApplicationOwner)); err != nil {
		t.Fatal(err)
	}
	rs := rules.MustCompile(r)
	_, err = nft.Apply(b.Pod, rs)
	if err = errors.Join(err, b.Settle(rs.Routing)); err != nil {
		t.Fatal(err)
	}
	known := connections{}
	for _, c := range a.calls {
		predicted, trace := b.Predict(&rs, c, netip.AddrPort{})
		if c.Transparent && trace.Fate.Redirect != 0 {
			continue // to 127.0.0.1 from another host's address: whether that arrives is for routing to say
		}
		c.Timeout = patience
		if predicted.Outcome == testbed.Silent {
			c.Timeout = 60 * time.Millisecond
		}
		got, err := b.Dial(c)
		if err != nil {
			t.Fatal(err)
		}
		predicted, trace = b.Predict(&rs, c, got.Own)
		predicted = known.first(c, got.Own, trace.Fate.Zone, predicted)
		if got.Outcome == testbed.Silent && predicted.Outcome != testbed.Silent && c.Timeout != patience {
			// By its own end it is one that is answered after all, on a busy machine not that soon.
			c.Local, c.Timeout = got.Own, patience
			if got, err = b.Dial(c); err != nil {
				t.Fatal(err)
			}
		}
		if !got.Agrees(predicted) {
			return fmt.Sprintf("%s\n\tgot       %s\n\tpredicted %s\n%s\n%s", c, got, predicted, story(trace), rs), 0
		}
		if err := checkEnds(got, c, trace.Fate); err != nil {
			return fmt.Sprintf("%s: %s: %v\n%s\n%s", c, got, err, story(trace), rs), 0
		}
		if trace.Fate.Captured() {
			captured++
		}
	}
	return "", captured
}

// connections are those that conntrack knows: what has become of the first datagram between two
// ends in a zone becomes of all that follow, whoever sends them. (Connections of TCP have different
// ports here.)
type connections map[connection]testbed.Answer

type connection struct {
	from, to netip.AddrPort
	zone     uint16
}

// first returns what was predicted for the connection's first call.
func (known connections) first(c testbed.Call, own netip.AddrPort, zone uint16, predicted testbed.Answer) testbed.Answer {
	if c.Network != "udp" {
		return predicted
	}
	id := connection{own, c.To, zone}
	if earlier, ok := known[id]; ok {
		return earlier
	}
	known[id] = predicted
	return predicted
}
