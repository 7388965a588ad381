package livetrace_test

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/compat"
	"github.com/sluice-mesh/sluice/compat/livetrace"
	"github.com/sluice-mesh/sluice/compat/xtables"
	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
	"github.com/sluice-mesh/sluice/nft/trace"
	"github.com/sluice-mesh/sluice/rules"
)

// runIn runs a program in the namespace.
func runIn(t *testing.T, ns *netns.NS, program string, args ...string) {
	t.Helper()
	cmd := exec.Command(netnstest.RequireBinary(t, program), args...)
	if err := ns.Do(func() error {
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

// legacy runs iptables-legacy in the namespace.
func legacy(t *testing.T, ns *netns.NS, args string) {
	t.Helper()
	runIn(t, ns, "iptables-legacy", strings.Fields(args)...)
}

// send sends the first packet of a connection to a port of lo without a listener.
func send(t *testing.T, ns *netns.NS, network string, port int) {
	t.Helper()
	err := ns.Do(func() error {
		c, err := net.Dial(network, fmt.Sprintf("127.0.0.1:%d", port))
		if err != nil {
			return err
		}
		_, err = c.Write([]byte("x"))
		return errors.Join(err, c.Close())
	})
	if err != nil && !errors.Is(err, unix.ECONNREFUSED) {
		t.Fatal(err)
	}
}

// hasMarks reports whether the namespace has rules that mark packets for tracing.
func hasMarks(t *testing.T, ns *netns.NS) bool {
	t.Helper()
	raw, err := xtables.Read(ns, rules.IPv4, "raw")
	if err != nil {
		t.Fatal(err)
	}
	return raw.Chain(trace.Chain) != nil || slices.ContainsFunc(raw.Chains,
		func(c xtables.Chain) bool {
			return slices.ContainsFunc(c.Rules, func(r xtables.Rule) bool {
				chain, _ := r.Jump()
				return chain == trace.Chain
			})
		})
}

// TestTraceByLegacyMarks traces without nf_tables. The target TRACE marks the packets.
func TestTraceByLegacyMarks(t *testing.T) {
	ns := netnstest.New(t)
	for _, args := range []string{
		"-t raw -A OUTPUT -m mark --mark 5 -j ACCEPT",
		"-t raw -A OUTPUT -p tcp --dport 80 -j MARK --set-mark 7",
		"-t nat -N web",
		"-t nat -A OUTPUT -p tcp --dport 80 -j web",
		"-t nat -A web -p tcp -j REDIRECT --to-ports 81",
		"-t nat -A OUTPUT -p tcp --dport 90 -j DNAT --to-destination 127.0.0.2:91",
		"-A OUTPUT -p tcp --dport 81 -j ACCEPT",
		"-A OUTPUT -p udp --dport 53 -j RETURN",
	} {
		legacy(t, ns, args)
	}
	log, err := trace.OpenLog(ns, 0)
	if err != nil {
		t.Fatal(err)
	}
	marks, err := compat.MarkTraces(ns, trace.Options{})
	if err != nil {
		t.Fatal(err)
	}
	send(t, ns, "tcp", 80)
	send(t, ns, "tcp", 90)
	send(t, ns, "udp", 53)
	live, err := compat.ReadLive(ns, compat.OriginAll)
	if err != nil {
		t.Fatal(err)
	}
	var c trace.Collector
	b, err := log.Read()
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	c.Add(now, b.Events...)
	want := map[uint16]string{
		80: "raw OUTPUT 3, nat OUTPUT 1, nat web 1, filter OUTPUT 1",
		90: "nat OUTPUT 2",
		53: "filter OUTPUT 2",
	}
	for _, p := range c.Take(now.Add(time.Second)) {
		packet := livetrace.PacketOf(p, map[uint32]string{1: "lo"})
		path, expected := want[packet.Destination.Port()]
		if packet.Owner = p.Events[0].Owner; packet.Owner == nil || !expected {
			continue // a reset or an ICMP error that the kernel sends
		}
		delete(want, packet.Destination.Port())
		o, ok := livetrace.Match(&live.Ruleset, p, packet, livetrace.Options{OwnerKnown: true})
		if !ok || len(o.Differences) > 0 || o.NotCompared != "" || o.Repeated {
			t.Errorf("%s: matched %v, differences %q, not compared: %q, repeated: %v; "+
				"want the predicted path of a first packet", packet, ok,
				o.Differences, o.NotCompared, o.Repeated)
		}
		var got []string
		for _, s := range o.Steps {
			if s.Index >= 0 && s.Hook == rules.Output {
				got = append(got,
					fmt.Sprintf("%s %s %d", s.Event.Table, s.Event.Chain, s.Index+1))
			}
		}
		if strings.Join(got, ", ") != path {
			t.Errorf("%s: path %q, want %q", packet, got, path)
		}
	}
	if len(want) > 0 {
		t.Errorf("the packets to these ports were not traced (want these rules): %v", want)
	}
	if _, err := compat.MarkTraces(ns, trace.Options{}); !errors.Is(err, trace.ErrBusy) {
		t.Errorf("a second session: error %v, want %v", err, trace.ErrBusy)
	}
	if removed, err := compat.UnmarkTraces(ns); removed || err != nil || !hasMarks(t, ns) {
		t.Errorf("UnmarkTraces removed rules: %v, error %v; want the rules of the running session"+
			" to remain", removed, err)
	}
	if err := errors.Join(marks.Close(), log.Close()); err != nil || hasMarks(t, ns) {
		t.Errorf("Close: error %v, want no error and no remaining rules", err)
	}
	if l, err := trace.OpenLog(ns, 0); err != nil {
		t.Errorf("the log is still in use: %v", err)
	} else if err := l.Close(); err != nil {
		t.Error(err)
	}
}

func TestMatchReportsCaptureByLegacyTPROXY(t *testing.T) {
	live := rules.Ruleset{Tables: []rules.Table{{
		Family: rules.IPv4, Name: "mangle", XTables: true, Comment: "iptables-legacy",
		Chains: []rules.Chain{{
			Name: "PREROUTING", Base: &rules.Base{Hook: rules.Prerouting, Priority: -150},
			Rules: []rules.Rule{{
				Matches: []rules.Match{rules.MatchProtocol{Protocols: []rules.Protocol{rules.TCP}}},
				Actions: []rules.Action{rules.Count{}, rules.TProxyDrop{Port: 15006}},
				Comment: "inbound to the proxy",
			}},
		}},
	}}}
	p := trace.Packet{Events: []trace.Event{{
		Kind: trace.Rule, Family: rules.IPv4, Table: "mangle", Chain: "PREROUTING", Number: 1,
		Hook: rules.Prerouting, In: 2,
		Header: &trace.Header{
			Protocol: rules.TCP, Source: netip.MustParseAddrPort("10.0.0.2:40000"),
			Destination: netip.MustParseAddrPort("10.0.0.1:80"), Flags: rules.SYN,
		},
		State: rules.New, HasState: true,
	}}}
	packet := livetrace.PacketOf(p, map[uint32]string{2: "eth0"})
	o, ok := livetrace.Match(&live, p, packet, livetrace.Options{OwnerKnown: true})
	if !ok || o.Outcome != livetrace.Captured || o.LocalPort != 15006 ||
		o.Message != "captured: inbound to the proxy (15006)" {
		t.Errorf("matched %v, %s, port %d: %s; want captured to port 15006", ok, o.Outcome,
			o.LocalPort, o.Message)
	}
}

// A rule with the target NFLOG can log the prefix of a trace, so that a step of iptables-legacy
// that the model does not predict does not prove the outcome.
func TestOutcomeOfAForgedStepIsUncertain(t *testing.T) {
	ns := netnstest.New(t)
	legacy(t, ns, "-t raw -A PREROUTING -p tcp -j CT --notrack")
	legacy(t, ns, "-t nat -A PREROUTING -p tcp -j REDIRECT --to-ports 15006")
	live, err := compat.ReadLive(ns, compat.OriginAll)
	if err != nil {
		t.Fatal(err)
	}
	p := trace.Packet{Events: []trace.Event{untrackedEvent("raw"), untrackedEvent("nat")}}
	packet := livetrace.PacketOf(p, map[uint32]string{2: "eth0"})
	o, ok := livetrace.Match(&live.Ruleset, p, packet, livetrace.Options{OwnerKnown: true})
	if !ok || !strings.HasPrefix(o.Message, "uncertain: captured") || !o.Uncertain || len(o.Differences) != 1 ||
		!strings.HasSuffix(o.Differences[0], " can forge this report)") {
		t.Errorf("matched %v, message %q, differences %q; want an uncertain outcome", ok, o.Message, o.Differences)
	}
}

// A pod can also prevent the comparison with the prediction, for example by closing its socket
// before its owner is read.
func TestOutcomeOfAStepThatIsNotComparedIsUncertain(t *testing.T) {
	ns := netnstest.New(t)
	legacy(t, ns, "-t nat -A OUTPUT -p tcp -j REDIRECT --to-ports 15001")
	live, err := compat.ReadLive(ns, compat.OriginAll)
	if err != nil {
		t.Fatal(err)
	}
	e := untrackedEvent("nat")
	e.Chain, e.Hook, e.In, e.Out, e.State = "OUTPUT", rules.Output, 0, 2, rules.New
	p := trace.Packet{Events: []trace.Event{e}}
	packet := livetrace.PacketOf(p, map[uint32]string{2: "eth0"})
	for ownerKnown, want := range map[bool]string{true: "captured: ", false: "uncertain: captured: "} {
		o, ok := livetrace.Match(&live.Ruleset, p, packet, livetrace.Options{OwnerKnown: ownerKnown})
		if !ok || !strings.HasPrefix(o.Message, want) || o.Uncertain == ownerKnown {
			t.Errorf("owner known: %v: matched %v, message %q, uncertain %v, not compared %q, differences %q; want %q",
				ownerKnown, ok, o.Message, o.Uncertain, o.NotCompared, o.Differences, want)
		}
	}
}

// The reports of policies are not compared with the prediction, so that a rule can forge a drop.
func TestDropByAPolicyThatTheModelDoesNotPredictIsUncertain(t *testing.T) {
	ns := netnstest.New(t)
	legacy(t, ns, "-t mangle -A PREROUTING -j ACCEPT")
	legacy(t, ns, "-t mangle -P PREROUTING DROP")
	live, err := compat.ReadLive(ns, compat.OriginAll)
	if err != nil {
		t.Fatal(err)
	}
	e := untrackedEvent("mangle")
	e.Kind, e.Number, e.Verdict = trace.Rule, 2, trace.Drop
	p := trace.Packet{Events: []trace.Event{e}}
	o, ok := livetrace.Match(&live.Ruleset, p, livetrace.PacketOf(p, map[uint32]string{2: "eth0"}),
		livetrace.Options{OwnerKnown: true})
	if !ok || o.Outcome != livetrace.Dropped || !o.Uncertain {
		t.Errorf("matched %v, message %q, uncertain %v; want an uncertain drop", ok, o.Message, o.Uncertain)
	}
}

// A packet without a reverse path contradicts what the model assumes, not the rules.
func TestPathThatDependsOnAnAssumptionIsNotCompared(t *testing.T) {
	ns := netnstest.New(t)
	legacy(t, ns, "-t raw -A PREROUTING -m rpfilter --invert -j DROP")
	live, err := compat.ReadLive(ns, compat.OriginAll)
	if err != nil {
		t.Fatal(err)
	}
	p := trace.Packet{Events: []trace.Event{untrackedEvent("raw")}}
	o, ok := livetrace.Match(&live.Ruleset, p, livetrace.PacketOf(p, map[uint32]string{2: "eth0"}), livetrace.Options{OwnerKnown: true})
	if !ok || len(o.Differences) > 0 ||
		!strings.HasSuffix(o.NotCompared, "assumed: the route to the source uses the input interface: yes") {
		t.Errorf("matched %v, not compared %q, differences %q; want not compared", ok, o.NotCompared, o.Differences)
	}
}

// untrackedEvent returns the event of the first rule at prerouting in a table of iptables-legacy,
// for an untracked packet.
func untrackedEvent(table string) trace.Event {
	return trace.Event{
		Kind: trace.Rule, Family: rules.IPv4, Table: table, Chain: "PREROUTING", Number: 1,
		Hook: rules.Prerouting, In: 2,
		Header: &trace.Header{
			Protocol: rules.TCP, Source: netip.MustParseAddrPort("10.0.0.2:40000"),
			Destination: netip.MustParseAddrPort("10.0.0.1:80"), Flags: rules.SYN,
		},
		State: rules.Untracked, HasState: true,
	}
}

// The log of iptables-legacy contains no packet ID. After NAT, the events of nf_tables can
// therefore not be assigned to the same packet, except for TCP.
func TestPathThatMayLackEventsIsNotCompared(t *testing.T) {
	ns := netnstest.New(t)
	legacy(t, ns, "-t nat -A PREROUTING -j REDIRECT")
	runIn(t, ns, "nft", "table inet x { chain in { type filter hook prerouting priority 0; drop; }; }")
	live, err := compat.ReadLive(ns, compat.OriginAll)
	if err != nil {
		t.Fatal(err)
	}
	for protocol, isCompared := range map[rules.Protocol]bool{rules.TCP: true, rules.UDP: false} {
		p := trace.Packet{Events: []trace.Event{{
			Kind: trace.Rule, Family: rules.IPv4, Table: "nat", Chain: "PREROUTING", Number: 1,
			Hook: rules.Prerouting, In: 2,
			Header: &trace.Header{
				Protocol: protocol, Source: netip.MustParseAddrPort("10.0.0.2:40000"),
				Destination: netip.MustParseAddrPort("10.0.0.1:80"), Flags: rules.SYN,
			},
			State: rules.New, HasState: true,
		}}}
		packet := livetrace.PacketOf(p, map[uint32]string{2: "eth0"})
		packet.InAddress = packet.Destination.Addr()
		o, ok := livetrace.Match(&live.Ruleset, p, packet, livetrace.Options{OwnerKnown: true})
		if !ok || (o.NotCompared == "") != isCompared || (len(o.Differences) == 1) != isCompared {
			t.Errorf("%s: not compared: %q, differences %q; want compared %v, with one difference if so",
				protocol, o.NotCompared, o.Differences, isCompared)
		}
	}
}
