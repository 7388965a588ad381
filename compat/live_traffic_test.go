package compat_test

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/compat"
	"github.com/sluice-mesh/sluice/nft"
	"github.com/sluice-mesh/sluice/nft/istio/istiotest"
	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
	"github.com/sluice-mesh/sluice/rules"
	"github.com/sluice-mesh/sluice/rules/diff"
)

// An owner has one rule at output: a redirection to its own port, or a rule that sets its own zone.
type owner struct {
	// add installs the owner's rule, and remove deletes it. zone selects the rule that sets the
	// zone.
	add    func(t *testing.T, ns *netns.NS, zone bool)
	remove func(t *testing.T, ns *netns.NS, zone bool)
	number int // the zone, and the port minus firstPort
}

const firstPort = 9000

// save returns the owner's rule for iptables.
func (o owner) save(zone bool) string {
	if zone {
		return fmt.Sprintf("*raw\n-A OUTPUT -p tcp -m tcp --dport 80 -j CT --zone %d\nCOMMIT\n",
			o.number)
	}
	return fmt.Sprintf(
		"*nat\n-A OUTPUT -p tcp -m tcp --dport 80 -j REDIRECT --to-ports %d\nCOMMIT\n",
		firstPort+o.number)
}

// chain returns the owner's chain for the nft command.
func (o owner) chain(zone bool) string {
	if zone {
		return fmt.Sprintf("type filter hook output priority -300; tcp dport 80 ct zone set %d;",
			o.number)
	}
	return fmt.Sprintf("type nat hook output priority -100; tcp dport 80 redirect to :%d;",
		firstPort+o.number)
}

func tableOf(zone bool) string {
	if zone {
		return "raw"
	}
	return "nat"
}

// owners returns an owner for each variant of iptables, and two owners for nft. The table of
// iptables-legacy remains after its rules are deleted, and keeps its position.
func owners() []owner {
	legacy, iptablesNFT := owner{number: 1}, owner{number: 2}
	legacy.add = func(t *testing.T, ns *netns.NS, zone bool) {
		istiotest.Restore(t, ns, istiotest.Legacy, rules.IPv4, legacy.save(zone))
	}
	legacy.remove = func(t *testing.T, ns *netns.NS, zone bool) {
		istiotest.Run(t, ns, "", "iptables-legacy", "-t", tableOf(zone), "-F")
	}
	iptablesNFT.add = func(t *testing.T, ns *netns.NS, zone bool) {
		istiotest.Restore(t, ns, istiotest.NFT, rules.IPv4, iptablesNFT.save(zone))
	}
	iptablesNFT.remove = func(t *testing.T, ns *netns.NS, zone bool) {
		nftables(t, ns, "delete table ip "+tableOf(zone))
	}
	list := []owner{legacy, iptablesNFT}
	for i, name := range []string{"inet a", "ip b"} {
		o := owner{number: 3 + i}
		o.add = func(t *testing.T, ns *netns.NS, zone bool) {
			nftables(t, ns, fmt.Sprintf("table %s { chain c { %s }; }", name, o.chain(zone)))
		}
		// The table remains, so that a chain that is added later is in an older table.
		o.remove = func(t *testing.T, ns *netns.NS, _ bool) {
			nftables(t, ns, "delete chain "+name+" c")
		}
		list = append(list, o)
	}
	return list
}

// TestPredictedOwnerDecides adds and removes the rules of owners in random order, and opens a
// connection after each change. The model must predict the owner of the rule that decides, or
// report the chain of this rule as ambiguous.
func TestPredictedOwnerDecides(t *testing.T) {
	for _, zone := range []bool{false, true} {
		for seed := range uint64(12) {
			t.Run(fmt.Sprintf("%s/%d", tableOf(zone), seed), func(t *testing.T) {
				t.Parallel()
				ns := netnstest.New(t)
				if zone {
					nftables(t, ns, zoneCounters())
				}
				random := rand.New(rand.NewPCG(seed, 1))
				list := owners()
				installed := map[int]bool{}
				for range 7 {
					i := random.IntN(len(list))
					if installed[i] {
						list[i].remove(t, ns, zone)
					} else {
						list[i].add(t, ns, zone)
					}
					installed[i] = !installed[i]
					wantPrediction(t, ns, zone)
				}
			})
		}
	}
}

// zoneCounters returns a table that counts the connections to port 80 in each zone.
func zoneCounters() string {
	text := "table ip zone_counters { chain c { type filter hook output priority 5;"
	for zone := range 6 {
		text += fmt.Sprintf(" tcp flags & (syn|ack) == syn ct zone %d counter;", zone)
	}
	return text + " }; }"
}

// wantPrediction compares a connection with the prediction of the model.
func wantPrediction(t *testing.T, ns *netns.NS, zone bool) {
	t.Helper()
	live := readLive(t, ns, compat.OriginAll)
	others := rules.Ruleset{Tables: slices.DeleteFunc(slices.Clone(live.Ruleset.Tables),
		func(t rules.Table) bool { return t.Name == "zone_counters" })}
	outcome := diff.Explain(&others, connection()).Passes[0].Outcome
	predicted, got := int(outcome.Redirect), 0
	if zone {
		predicted, got = int(outcome.Zone), zoneOf(t, ns)
	} else {
		got = answeredBy(t, ns, timeoutFor(predicted))
	}
	if _, err := nft.Hooks(ns); zone && err == nil && len(live.Ambiguous) > 0 {
		t.Errorf("ambiguous, although the kernel lists its hooks: %v", live.Ambiguous)
	}
	if len(live.Ambiguous) == 0 {
		if got != predicted {
			t.Errorf("the connection has port or zone %d, but the model predicts %d:\n%s", got, predicted,
				live.Ruleset.String())
		}
		return
	}
	var ambiguousRules []string
	for _, a := range live.Ambiguous {
		for _, c := range a.Chains {
			for _, r := range c.Chain.Rules {
				ambiguousRules = append(ambiguousRules, r.String())
			}
		}
	}
	if !slices.ContainsFunc(ambiguousRules, func(rule string) bool {
		return strings.HasSuffix(rule, fmt.Sprint(got))
	}) {
		t.Errorf("the connection has port or zone %d, want one that an ambiguous rule sets: %q", got,
			ambiguousRules)
	}
}

var destination = netip.MustParseAddrPort("127.0.0.1:80")

func connection() rules.Packet {
	return rules.Packet{
		Hook: rules.Output, OutInterface: "lo", Protocol: rules.TCP,
		Source: netip.MustParseAddrPort("127.0.0.1:1"), Destination: destination,
		Owner: &rules.Owner{}, Flags: rules.SYN,
	}
}

// dropTimeout is how long to wait for a connection that should be dropped.
const dropTimeout = 300 * time.Millisecond

// timeoutFor returns how long to wait for an answer from the port. Port 0 means no answer.
func timeoutFor(port int) time.Duration {
	if port == 0 {
		return dropTimeout
	}
	return answerTimeout
}

// answeredBy connects to port 80, which has no listener, and returns the port that answers. It
// returns 0 if the connection is refused or dropped.
func answeredBy(t *testing.T, ns *netns.NS, timeout time.Duration) int {
	t.Helper()
	answered := 0
	err := ns.Do(func() error {
		for number := range 6 {
			l, err := listen(fmt.Sprintf("127.0.0.1:%d", firstPort+number))
			if err != nil {
				return err
			}
			defer l.Close()
			go serve(l, byte(number))
		}
		c, err := net.DialTimeout("tcp4", destination.String(), timeout)
		if err != nil {
			return nil // refused or dropped
		}
		defer c.Close()
		var number [1]byte
		if _, err := io.ReadFull(c, number[:]); err != nil {
			return err
		}
		answered = firstPort + int(number[0])
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return answered
}

// listen listens on an address, and retries while the address is in use: a process that another
// test starts has copies of earlier listeners until it executes its program.
func listen(address string) (net.Listener, error) {
	for begin := time.Now(); ; runtime.Gosched() {
		l, err := net.Listen("tcp4", address)
		if !errors.Is(err, unix.EADDRINUSE) || time.Since(begin) > answerTimeout {
			return l, err
		}
	}
}

func serve(l net.Listener, number byte) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		_, _ = c.Write([]byte{number})
		_ = c.Close()
	}
}

// zoneOf connects to port 80, and returns the zone in which the table zone_counters counts the
// connection.
func zoneOf(t *testing.T, ns *netns.NS) int {
	t.Helper()
	before := counted(t, ns)
	answeredBy(t, ns, dropTimeout)
	after := counted(t, ns)
	for zone := range after {
		if after[zone] > before[zone] {
			return zone
		}
	}
	t.Fatalf("no zone counts the connection: %v", after)
	return 0
}

// counted returns the counters of the table zone_counters.
func counted(t *testing.T, ns *netns.NS) []uint64 {
	t.Helper()
	live := readLive(t, ns, compat.OriginNFT)
	i := slices.IndexFunc(live.Ruleset.Tables, func(t rules.Table) bool {
		return t.Name == "zone_counters"
	})
	var packets []uint64
	for _, r := range live.Ruleset.Tables[i].Chains[0].Rules {
		packets = append(packets, r.Hits.Packets)
	}
	return packets
}

// TestPredictedPortAnswers compares the port that answers a connection with the prediction of the
// model. All NAT chains of a hook run at one position, in the order of their priorities.
func TestPredictedPortAnswers(t *testing.T) {
	const translate, drop = "tcp dport 80 redirect to :9001;", "tcp dport 80 drop;"
	for _, tc := range []struct {
		name   string
		chains []string
		want   int // the port that answers, 0 for none
	}{
		{"NAT chains run in order of priority", []string{
			"chain a { type nat hook output priority -100; tcp dport 80 redirect to :9002; }",
			"chain b { type nat hook output priority -110; " + translate + " }",
		}, 9001},
		{"in one table the NAT chain created last runs first", []string{
			"chain a { type nat hook output priority -100; tcp dport 80 redirect to :9002; }",
			"chain b { type nat hook output priority -100; " + translate + " }",
		}, 9001},
		{"a filter chain runs before NAT, although the NAT chain has the lower priority", []string{
			"chain a { type nat hook output priority -110; " + translate + " }",
			"chain b { type filter hook output priority -105; " + drop + " }",
		}, 0},
		{"a filter chain runs after NAT, although it has the lower priority", []string{
			"chain a { type nat hook output priority 50; " + translate + " }",
			"chain b { type filter hook output priority -95; " + drop + " }",
		}, 9001},
		{"a verdict map jumps to a chain that redirects", []string{
			"chain a { type nat hook output priority -100; tcp dport vmap { 79 : accept, 80 : jump c, 81 : drop }; }",
			"chain c { " + translate + " }",
		}, 9001},
		{"a DNAT rule changes only the port", []string{
			"chain a { type nat hook output priority -100; tcp dport 80 dnat to :9003; }",
		}, 9003},
	} {
		t.Run(tc.name, func(t *testing.T) {
			ns := netnstest.New(t)
			// A chain must exist before a rule jumps to it.
			for _, c := range slices.Backward(tc.chains) {
				if !strings.Contains(c, "hook") {
					nftables(t, ns, "table inet t { "+c+"; }")
				}
			}
			for _, c := range tc.chains {
				if strings.Contains(c, "hook") {
					nftables(t, ns, "table inet t { "+c+"; }")
				}
			}
			live := readLive(t, ns, compat.OriginAll)
			outcome := diff.Explain(&live.Ruleset, connection()).Passes[0].Outcome
			predicted := int(outcome.Redirect) + int(outcome.DNATPort)
			if outcome.Dropped || outcome.Undecided != "" {
				predicted = 0
			}
			if got := answeredBy(t, ns, timeoutFor(tc.want)); got != tc.want || predicted != tc.want ||
				len(live.Ambiguous) > 0 {
				t.Errorf("port %d answers, the model predicts %d (%s), want %d; ambiguous: %v", got,
					predicted, outcome, tc.want, live.Ambiguous)
			}
		})
	}
}
