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

// An owner has one rule at output: of NAT to a port of its own, or one that chooses a zone of its
// own.
type owner struct {
	name string
	// add and remove register its chain and take it away again; zone tells which of the two rules
	// it has.
	add    func(t *testing.T, ns *netns.NS, zone bool)
	remove func(t *testing.T, ns *netns.NS, zone bool)
	number int // the zone, and the port less 9000
}

const firstPort = 9000

// save is the owner's rule for iptables.
func (o owner) save(zone bool) string {
	if zone {
		return fmt.Sprintf("*raw\n-A OUTPUT -p tcp -m tcp --dport 80 -j CT --zone %d\nCOMMIT\n",
			o.number)
	}
	return fmt.Sprintf(
		"*nat\n-A OUTPUT -p tcp -m tcp --dport 80 -j REDIRECT --to-ports %d\nCOMMIT\n",
		firstPort+o.number)
}

// chain is the owner's chain for the nft command.
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

// owners are of all kinds. The table of iptables-legacy stays when its rules go, so that its place
// does too.
func owners() []owner {
	legacy, variant := owner{name: "legacy", number: 1}, owner{name: "variant", number: 2}
	legacy.add = func(t *testing.T, ns *netns.NS, zone bool) {
		istiotest.Restore(t, ns, istiotest.Legacy, rules.IPv4, legacy.save(zone))
	}
	legacy.remove = func(t *testing.T, ns *netns.NS, zone bool) {
		istiotest.Run(t, ns, "", "iptables-legacy", "-t", tableOf(zone), "-F")
	}
	variant.add = func(t *testing.T, ns *netns.NS, zone bool) {
		istiotest.Restore(t, ns, istiotest.NFT, rules.IPv4, variant.save(zone))
	}
	variant.remove = func(t *testing.T, ns *netns.NS, zone bool) {
		nftables(t, ns, "delete table ip "+tableOf(zone))
	}
	list := []owner{legacy, variant}
	for i, name := range []string{"inet a", "ip b"} {
		o := owner{name: name, number: 3 + i}
		o.add = func(t *testing.T, ns *netns.NS, zone bool) {
			nftables(t, ns, fmt.Sprintf("table %s { chain c { %s }; }", name, o.chain(zone)))
		}
		// The table stays, so that a chain that comes later is in an older table.
		o.remove = func(t *testing.T, ns *netns.NS, _ bool) {
			nftables(t, ns, "delete chain "+name+" c")
		}
		list = append(list, o)
	}
	return list
}

// TestPredictedOwnerDecides lets owners come and go in any order, and sends a real connection each
// time: the rule that decides is the one that the model names, unless the model says that it does
// not know; then it is one of those that it names.
func TestPredictedOwnerDecides(t *testing.T) {
	for _, zone := range []bool{false, true} {
		for seed := range uint64(12) {
			t.Run(fmt.Sprintf("%s/%d", tableOf(zone), seed), func(t *testing.T) {
				t.Parallel()
				ns := netnstest.New(t)
				if zone {
					nftables(t, ns, witness())
				}
				random := rand.New(rand.NewPCG(seed, 1))
				list := owners()
				here := map[int]bool{}
				for range 7 {
					i := random.IntN(len(list))
					if here[i] {
						list[i].remove(t, ns, zone)
					} else {
						list[i].add(t, ns, zone)
					}
					here[i] = !here[i]
					wantPrediction(t, ns, zone)
				}
			})
		}
	}
}

// witness counts the connections to port 80 in each zone.
func witness() string {
	text := "table ip witness { chain c { type filter hook output priority 5;"
	for zone := range 6 {
		text += fmt.Sprintf(" tcp flags & (syn|ack) == syn ct zone %d counter;", zone)
	}
	return text + " }; }"
}

// wantPrediction compares a connection with what the model says of it.
func wantPrediction(t *testing.T, ns *netns.NS, zone bool) {
	t.Helper()
	live := readLive(t, ns, compat.OriginAll)
	others := rules.Ruleset{Tables: slices.DeleteFunc(slices.Clone(live.Ruleset.Tables),
		func(t rules.Table) bool { return t.Name == "witness" })}
	outcome := diff.Explain(&others, connection()).Passes[0].Outcome
	predicted, got := int(outcome.Redirect), 0
	if zone {
		predicted, got = int(outcome.Zone), zoneOf(t, ns)
	} else {
		got = answeredBy(t, ns, waitFor(predicted))
	}
	if _, err := nft.Hooks(ns); zone && err == nil && len(live.Ambiguous) > 0 {
		t.Errorf("the kernel lists its hooks, but %v", live.Ambiguous)
	}
	if len(live.Ambiguous) == 0 {
		if got != predicted {
			t.Errorf("%d decides, the model says %d:\n%s", got, predicted, live.Ruleset.String())
		}
		return
	}
	var named []string
	for _, a := range live.Ambiguous {
		for _, c := range a.Chains {
			for _, r := range c.Chain.Rules {
				named = append(named, r.String())
			}
		}
	}
	if !slices.ContainsFunc(named, func(rule string) bool {
		return strings.HasSuffix(rule, fmt.Sprint(got))
	}) {
		t.Errorf("%d decides, which is none of %q", got, named)
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

// silence is how long a connection is waited for that is to be dropped.
const silence = 300 * time.Millisecond

// waitFor is how long the answer of a port is waited for; 0 is that of nobody.
func waitFor(port int) time.Duration {
	if port == 0 {
		return silence
	}
	return patience
}

// answeredBy connects to port 80, and returns the port that answers in time; 0 if it is port 80
// itself, or nobody.
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
			return nil // refused or silent
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

// listen listens on an address. A process that another test is just starting has copies of earlier
// listeners until it executes its program.
func listen(address string) (net.Listener, error) {
	for begin := time.Now(); ; runtime.Gosched() {
		l, err := net.Listen("tcp4", address)
		if !errors.Is(err, unix.EADDRINUSE) || time.Since(begin) > patience {
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

// zoneOf connects to port 80, where nobody listens, and returns the zone in which the witness
// counts it.
func zoneOf(t *testing.T, ns *netns.NS) int {
	t.Helper()
	before := counted(t, ns)
	answeredBy(t, ns, silence)
	after := counted(t, ns)
	for zone := range after {
		if after[zone] > before[zone] {
			return zone
		}
	}
	t.Fatalf("no zone counts the connection: %v", after)
	return 0
}

// counted are the counters of the witness.
func counted(t *testing.T, ns *netns.NS) []uint64 {
	t.Helper()
	live := readLive(t, ns, compat.OriginNFT)
	i := slices.IndexFunc(live.Ruleset.Tables, func(t rules.Table) bool {
		return t.Name == "witness"
	})
	var packets []uint64
	for _, r := range live.Ruleset.Tables[i].Chains[0].Rules {
		packets = append(packets, r.Hits.Packets)
	}
	return packets
}

// TestPrioritiesOfNATOrderOnlyNAT has chains whose order the priorities tell, and those for which
// they do not mean what they say.
func TestPrioritiesOfNATOrderOnlyNAT(t *testing.T) {
	const translate, drop = "tcp dport 80 redirect to :9001;", "tcp dport 80 drop;"
	for _, tc := range []struct {
		says   string
		chains []string
		want   int // the port that answers, 0 for none
	}{
		{"the smaller priority first", []string{
			"chain a { type nat hook output priority -100; tcp dport 80 redirect to :9002; }",
			"chain b { type nat hook output priority -110; " + translate + " }",
		}, 9001},
		{"of one table, the chain made last", []string{
			"chain a { type nat hook output priority -100; tcp dport 80 redirect to :9002; }",
			"chain b { type nat hook output priority -100; " + translate + " }",
		}, 9001},
		{"a filter before the place of NAT, though NAT has the smaller priority", []string{
			"chain a { type nat hook output priority -110; " + translate + " }",
			"chain b { type filter hook output priority -105; " + drop + " }",
		}, 0},
		{"a filter behind the place of NAT, though it has the smaller priority", []string{
			"chain a { type nat hook output priority 50; " + translate + " }",
			"chain b { type filter hook output priority -95; " + drop + " }",
		}, 9001},
		{"a verdict map", []string{
			"chain a { type nat hook output priority -100; tcp dport vmap { 79 : accept, 80 : jump c, 81 : drop }; }",
			"chain c { " + translate + " }",
		}, 9001},
		{"a port at the destination", []string{
			"chain a { type nat hook output priority -100; tcp dport 80 dnat to :9003; }",
		}, 9003},
	} {
		t.Run(tc.says, func(t *testing.T) {
			ns := netnstest.New(t)
			// chains that are jumped to must be there
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
			if got := answeredBy(t, ns, waitFor(tc.want)); got != tc.want || predicted != tc.want ||
				len(live.Ambiguous) > 0 {
				t.Errorf("%d answers, the model says %d (%s), want %d; ambiguous: %v", got,
					predicted, outcome, tc.want, live.Ambiguous)
			}
		})
	}
}
