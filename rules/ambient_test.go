package rules_test

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/sluice-mesh/sluice/compat/save"
	"github.com/sluice-mesh/sluice/rules"
	"github.com/sluice-mesh/sluice/rules/diff"
)

// ambientReference returns the rules that Istio's node agent adds to a pod with its iptables
// backend. TestAmbientReferenceEqualsRecordedRules compares these rules with the recorded runs.
func ambientReference(t testing.TB, a rules.Ambient) rules.Ruleset {
	var rs rules.Ruleset
	for _, f := range ambientFamilies(a) {
		tables, err := save.Parse(f, "reference", strings.NewReader(ambientSave(a, f)))
		if err != nil {
			t.Fatal(err)
		}
		rs.Tables = append(rs.Tables, tables...)
		rs.Routing.Policies = append(rs.Routing.Policies, rules.PolicyRoute{
			Family: f, Mark: 0x111, Mask: 0xfff, Table: 100, Priority: 32764,
		})
	}
	return rs
}

func ambientFamilies(a rules.Ambient) []rules.Family {
	if a.IPv6 {
		return []rules.Family{rules.IPv4, rules.IPv6}
	}
	return []rules.Family{rules.IPv4}
}

// ambientSave returns the rules of one family as iptables-save prints them.
func ambientSave(a rules.Ambient, f rules.Family) string {
	loopback, probes := "127.0.0.1/32", a.ProbeSourceIPv4.String()+"/32"
	if f == rules.IPv6 {
		loopback, probes = "::1/128", a.ProbeSourceIPv6.String()+"/128"
	}
	const (
		jumps       = "-A PREROUTING -j ISTIO_PRERT\n-A OUTPUT -j ISTIO_OUTPUT\n"
		fromZtunnel = "-m mark --mark 0x539/0xfff"
		notZtunnel  = "-m mark ! --mark 0x539/0xfff"
		allBits     = "--nfmask 0xffffffff --ctmask 0xffffffff"
	)
	b := new(strings.Builder)
	table := func(name string) {
		fmt.Fprintf(b, "*%s\n:ISTIO_OUTPUT -\n:ISTIO_PRERT -\n%s", name, jumps)
	}
	add := func(format string, args ...any) { fmt.Fprintf(b, "-A "+format+"\n", args...) }
	if a.DNS {
		table("raw")
		add("ISTIO_OUTPUT -p udp -m udp --dport 53 %s -j CT --zone 1", fromZtunnel)
		add("ISTIO_PRERT -p udp -m udp --sport 53 %s -j CT --zone 1", notZtunnel)
		b.WriteString("COMMIT\n")
	}
	table("mangle")
	add("ISTIO_PRERT %s -j CONNMARK --set-xmark 0x111/0xfff", fromZtunnel)
	add("ISTIO_OUTPUT -m connmark --mark 0x111/0xfff -j CONNMARK --restore-mark %s", allBits)
	b.WriteString("COMMIT\n")
	table("nat")
	for _, n := range a.RerouteInterfaces {
		add("ISTIO_PRERT -i %s -p tcp -j REDIRECT --to-ports 15001", xtablesName(n))
		add("ISTIO_PRERT -i %s -p tcp -j RETURN", xtablesName(n))
	}
	if !a.BypassInboundCapture {
		add("ISTIO_PRERT -s %s -p tcp -m tcp -j ACCEPT", probes)
		add("ISTIO_PRERT ! -d %s -p tcp -m tcp ! --dport 15008 %s -j REDIRECT --to-ports 15006",
			loopback, notZtunnel)
	}
	add("ISTIO_OUTPUT -d %s -p tcp -m tcp -j ACCEPT", probes)
	if a.DNS {
		add("ISTIO_OUTPUT ! -o lo -p udp -m udp --dport 53 %s -j REDIRECT --to-ports 15053", notZtunnel)
		add("ISTIO_OUTPUT ! -d %s -p tcp -m tcp --dport 53 %s -j REDIRECT --to-ports 15053",
			loopback, notZtunnel)
	}
	add("ISTIO_OUTPUT -p tcp -m mark --mark 0x111/0xfff -j ACCEPT")
	add("ISTIO_OUTPUT ! -d %s -o lo -j ACCEPT", loopback)
	add("ISTIO_OUTPUT ! -d %s -p tcp %s -j REDIRECT --to-ports 15001", loopback, notZtunnel)
	b.WriteString("COMMIT\n")
	return b.String()
}

// wantEquivalent fails unless both rulesets treat every packet alike.
func wantEquivalent(t testing.TB, sluice, istio rules.Ruleset) {
	t.Helper()
	r := diff.Decide(diff.Side{Ruleset: sluice, RoutingKnown: true},
		diff.Side{Ruleset: istio, RoutingKnown: true}, diff.Options{})
	if v := r.StrictVerdict(); v != diff.Equivalent {
		t.Errorf("verdict %s, want %s\n%v\n%v\n%v", v, diff.Equivalent, r.Classes, r.Undecided,
			r.Routing)
	}
}

func TestAmbientRulesTreatEveryPacketAsIstiosDo(t *testing.T) {
	for name, a := range ambientCases() {
		t.Run(name, func(t *testing.T) {
			wantEquivalent(t, compileAmbient(t, a), ambientReference(t, a))
		})
	}
}

// ambientCases returns all combinations of families, DNS, inbound bypass and up to two rerouted
// interfaces.
func ambientCases() map[string]rules.Ambient {
	cases := map[string]rules.Ambient{}
	for i := range 24 {
		a := rules.DefaultAmbient()
		a.IPv6, a.DNS, a.BypassInboundCapture = i&1 == 1, i&2 == 2, i&4 == 4
		a.RerouteInterfaces = []rules.InterfaceName{{Name: "virt0"}, {Name: "virt", Prefix: true}}[:i/8]
		cases[fmt.Sprintf("IPv6 %t, DNS %t, bypass %t, %d interfaces", a.IPv6, a.DNS,
			a.BypassInboundCapture, i/8)] = a
	}
	return cases
}

func TestEachAmbientParameterMatters(t *testing.T) {
	plain := rules.DefaultAmbient()
	for name, change := range map[string]func(*rules.Ambient){
		"DNS":               func(a *rules.Ambient) { a.DNS = false },
		"inbound bypass":    func(a *rules.Ambient) { a.BypassInboundCapture = true },
		"virtual interface": func(a *rules.Ambient) { a.RerouteInterfaces = interfaceNames("virt0") },
		"IPv6":              func(a *rules.Ambient) { a.IPv6 = false },
		"IPv4 probes": func(a *rules.Ambient) {
			a.ProbeSourceIPv4 = netip.MustParseAddr("169.254.7.128")
		},
		"IPv6 probes": func(a *rules.Ambient) { a.ProbeSourceIPv6 = netip.MustParseAddr("fd16::1") },
	} {
		changed := plain
		change(&changed)
		left, right := compileAmbient(t, plain), compileAmbient(t, changed)
		r := diff.Decide(diff.Side{Ruleset: left, RoutingKnown: true},
			diff.Side{Ruleset: right, RoutingKnown: true}, diff.Options{})
		if r.StrictVerdict() != diff.Different {
			t.Errorf("%s: verdict %s, want %s", name, r.StrictVerdict(), diff.Different)
		}
	}
}

func compileAmbient(t testing.TB, a rules.Ambient) rules.Ruleset {
	t.Helper()
	rs, err := rules.CompileAmbient(a)
	if err != nil {
		t.Fatal(err)
	}
	return rs
}

// TestSourceOfProbesMustBeUnicast checks that the source of probes must be an address to which a
// pod can send its answer.
func TestSourceOfProbesMustBeUnicast(t *testing.T) {
	for _, text := range []string{
		"0.0.0.0", "127.0.0.1", "127.9.9.9", "224.0.0.1", "239.1.2.3", "255.255.255.255", "10.0.0.1",
		"169.254.0.1", "::", "::1", "ff02::1", "::ffff:10.0.0.1", "fe80::1%eth0", "fd99::9", "fe80::1",
	} {
		source := netip.MustParseAddr(text)
		a, h := rules.DefaultAmbient(), rules.DefaultAmbientHost()
		field := "ProbeSourceIPv6"
		if source.Is4() {
			field = "ProbeSourceIPv4"
			a.ProbeSourceIPv4, h.ProbeSourceIPv4 = source, source
		} else {
			a.ProbeSourceIPv6, h.ProbeSourceIPv6 = source, source
		}
		var want string
		switch text {
		case "10.0.0.1", "169.254.0.1", "fd99::9", "fe80::1":
		default:
			want = fmt.Sprintf("%s: %q is not allowed: want a unicast IPv", field, text)
		}
		for name, err := range map[string]error{"Ambient": a.Validate(), "AmbientHost": h.Validate()} {
			if got := fmt.Sprint(err); (want == "") != (err == nil) ||
				!strings.HasPrefix(got, want) && want != "" {
				t.Errorf("%s with %s: error %v, want %q", name, text, err, want)
			}
		}
	}
}

func TestAmbientErrorsAreReportedTogether(t *testing.T) {
	_, err := rules.CompileAmbient(rules.Ambient{
		ProbeSourceIPv4:   netip.MustParseAddr("::1"),
		RerouteInterfaces: []rules.InterfaceName{{Name: "a b"}},
		Without:           []rules.DeviationID{"none"},
	})
	for _, want := range []string{
		`ProbeSourceIPv4: "::1" is not allowed: want a unicast IPv4 address`,
		`ProbeSourceIPv6: "invalid IP" is not allowed: want a unicast IPv6 address without zone`,
		`RerouteInterfaces: "a b" is not allowed: want the name of an interface`,
		`Without: "none" is not allowed: want the id of a deviation`,
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want one that contains %s", err, want)
		}
	}
}
