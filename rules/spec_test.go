package rules_test

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/sluice-mesh/sluice/rules"
	"github.com/sluice-mesh/sluice/rules/diff"
)

// A row specifies the outcome of a packet.
type row struct {
	name   string
	packet string // in the syntax of rules.ParsePacket
	want   rules.Outcome
}

// Outcomes with Istio's default ports.
var (
	uncaptured    = rules.Outcome{}
	rerouted      = rules.Outcome{Rerouted: true}
	dropped       = rules.Outcome{Dropped: true}
	toOutbound    = rules.Outcome{Redirect: rules.DefaultProxyPort}
	toInbound     = rules.Outcome{Redirect: rules.DefaultInboundCapturePort}
	toTransparent = rules.Outcome{
		TProxy: rules.DefaultInboundCapturePort, Mark: rules.DefaultTProxyMark,
	}
	toAgent = rules.Outcome{Redirect: rules.DNSPort}
	// DNS over UDP also gets a conntrack zone.
	toAgentInZone = rules.Outcome{Redirect: rules.DNSPort, Zone: rules.AppDNSZone}
	appZoneOnly   = rules.Outcome{Zone: rules.AppDNSZone}
	proxyZoneOnly = rules.Outcome{Zone: rules.ProxyDNSZone}
)

// typical returns istio-init's default parameters, with changes. Without changes, the parameters
// capture all TCP connections, except inbound connections to the proxy's own ports.
func typical(changes ...func(*rules.Redirect)) rules.Redirect {
	r := rules.DefaultRedirect()
	r.InboundPorts.All = true
	r.InboundExcludePorts = ports("15090,15021,15020")
	r.OutboundCIDRs.All = true
	for _, change := range changes {
		change(&r)
	}
	return r
}

// tproxyMode and ipv6 are changes for typical.
func tproxyMode(r *rules.Redirect) { r.Mode = rules.ModeTProxy }

func ipv6(r *rules.Redirect) { r.IPv6 = true }

// must returns the value, and panics if there is an error.
func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

func ports(text string) []rules.PortRange { return must(rules.ParsePorts(text)) }

func ids(text string) []rules.IDRange { return must(rules.ParseIDs(text, nil)) }

func prefixSelection(text string) rules.PrefixSelection {
	return must(rules.ParsePrefixSelection(text))
}

func interfaceNames(text string) []rules.InterfaceName { return must(rules.ParseInterfaces(text)) }

func packet(text string) rules.Packet { return must(rules.ParsePacket(text)) }

// compile compiles valid parameters.
func compile(t testing.TB, r rules.Redirect) rules.Ruleset {
	t.Helper()
	if err := r.Validate(); err != nil {
		t.Fatalf("the parameters of this test are not valid:\n%v", err)
	}
	return rules.MustCompile(r)
}

// checkRows fails for each row whose packet has another outcome.
func checkRows(t *testing.T, rs rules.Ruleset, rows []row) {
	t.Helper()
	for _, r := range rows {
		trace := diff.Explain(&rs, packet(r.packet))
		if trace.Outcome != r.want {
			t.Errorf("%s\n%s", r.name, mismatch(r.packet, r.want, trace))
		}
	}
}

// mismatch describes the expected and the actual outcome of a packet, and the rules that it
// matched.
func mismatch(packet string, want rules.Outcome, got rules.Trace) string {
	return fmt.Sprintf("\tpacket %s\n\twant   %s\n\tgot    %s\n%s", packet, want, got.Outcome,
		decisions(got))
}

// decisions lists the rules that a packet matched.
func decisions(t rules.Trace) string {
	b := new(strings.Builder)
	for _, pass := range t.Passes {
		fmt.Fprintf(b, "\t%s: %s\n", pass.Packet.Hook, pass.Packet)
		for _, step := range pass.Steps {
			fmt.Fprintf(b, "\t\t%s\n", step)
		}
		if len(pass.Steps) == 0 {
			b.WriteString("\t\tno rule matches\n")
		}
	}
	return b.String()
}

// isFulfilled reports whether a packet satisfies a match in a chain that runs after conntrack.
func isFulfilled(m rules.Match, p rules.Packet) bool {
	return len(fulfilled([]rules.Match{m}, p)) > 0
}

// fulfilled returns the indices of the matches that a packet satisfies in a chain that runs after
// conntrack. A missing address counts as the unspecified address.
func fulfilled[M rules.Match](matches []M, p rules.Packet) []int {
	withAddr := func(a, other netip.AddrPort) netip.AddrPort {
		switch {
		case a.Addr().IsValid():
			return a
		case other.Addr().Is6():
			return netip.AddrPortFrom(netip.IPv6Unspecified(), a.Port())
		}
		return netip.AddrPortFrom(netip.IPv4Unspecified(), a.Port())
	}
	p.Source, p.Destination = withAddr(p.Source, p.Destination), withAddr(p.Destination, p.Source)
	c := rules.Chain{Name: "c", Base: &rules.Base{Hook: p.Hook}}
	for _, m := range matches {
		c.Rules = append(c.Rules, rules.Rule{
			Matches: []rules.Match{m}, Actions: []rules.Action{rules.Count{}},
		})
	}
	rs := rules.Ruleset{Tables: []rules.Table{{Name: "t", Chains: []rules.Chain{c}}}}
	var indices []int
	for _, s := range diff.Explain(&rs, p).Passes[0].Steps {
		indices = append(indices, s.Index)
	}
	return indices
}
