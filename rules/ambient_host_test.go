package rules_test

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/sluice-mesh/sluice/rules"
	"github.com/sluice-mesh/sluice/rules/diff"
)

// ambientHost returns the parameters of a node with two dual-stack pods.
func ambientHost() rules.AmbientHost {
	h := rules.DefaultAmbientHost()
	for _, a := range []string{
		"10.244.1.5", "10.244.1.7", "fd00:10:244:1::5", "fd00:10:244:1::7",
	} {
		h.Pods = append(h.Pods, netip.MustParseAddr(a))
	}
	h.Kubelet = rules.CgroupOf("/system.slice/kubelet.service")
	h.Kubelet.ID = 4711
	return h
}

// compileHost returns the ruleset of a node.
func compileHost(t testing.TB, h rules.AmbientHost) rules.Ruleset {
	t.Helper()
	rs, err := rules.CompileAmbientHost(h)
	if err != nil {
		t.Fatal(err)
	}
	return rs
}

func TestAmbientHostRules(t *testing.T) {
	const want = `table inet sluice {
	set probes-ipv4 {
		type ipv4_addr
		flags interval
		elements = { 10.244.1.5,
			     10.244.1.7 }
	}

	set probes-ipv6 {
		type ipv6_addr
		flags interval
		elements = { fd00:10:244:1::5,
			     fd00:10:244:1::7 }
	}

	chain mangle-output {
		type route hook output priority -160; policy accept;
		ip daddr @probes-ipv4 meta l4proto tcp socket cgroupv2 level 2 "system.slice/kubelet.service" meta mark set meta mark & 0xffffdfff | 0x2000 comment "probes of the kubelet"
		ip6 daddr @probes-ipv6 meta l4proto tcp socket cgroupv2 level 2 "system.slice/kubelet.service" meta mark set meta mark & 0xffffdfff | 0x2000 comment "probes of the kubelet"
	}

	chain nat-postrouting {
		type nat hook postrouting priority 90; policy accept;
		ip daddr @probes-ipv4 meta l4proto tcp meta mark & 0x2000 == 0x2000 snat ip to 169.254.7.127 comment "the source of probes"
		ip6 daddr @probes-ipv6 meta l4proto tcp meta mark & 0x2000 == 0x2000 snat ip6 to fd16:9254:7127:1337:ffff:ffff:ffff:ffff comment "the source of probes"
	}
}
`
	if got := compileHost(t, ambientHost()).String(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestEachAmbientHostParameterMatters(t *testing.T) {
	plain := ambientHost()
	for name, change := range map[string]func(*rules.AmbientHost){
		"the pods":           func(h *rules.AmbientHost) { h.Pods = h.Pods[1:] },
		"the cgroup":         func(h *rules.AmbientHost) { h.Kubelet = rules.CgroupOf("system.slice/k3s.service") },
		"no cgroup":          func(h *rules.AmbientHost) { h.Kubelet = rules.MatchCgroup{} },
		"IPv6":               func(h *rules.AmbientHost) { h.IPv6 = false },
		"the mark":           func(h *rules.AmbientHost) { h.ProbeMark = 0x1000 },
		"the source":         func(h *rules.AmbientHost) { h.ProbeSourceIPv4 = netip.MustParseAddr("169.254.9.9") },
		"the source of IPv6": func(h *rules.AmbientHost) { h.ProbeSourceIPv6 = netip.MustParseAddr("fd99::9") },
		"the deviation probes-by-user": func(h *rules.AmbientHost) {
			h.Without = []rules.DeviationID{rules.ProbesByUser}
		},
		"the deviation probes-by-host": func(h *rules.AmbientHost) {
			h.Without = []rules.DeviationID{rules.ProbesByHost}
		},
	} {
		changed := plain
		change(&changed)
		r := diff.Decide(diff.Side{Ruleset: compileHost(t, plain), RoutingKnown: true},
			diff.Side{Ruleset: compileHost(t, changed), RoutingKnown: true}, diff.Options{})
		if verdict := r.StrictVerdict(); verdict != diff.Different {
			t.Errorf("%s: verdict %s, want %s", name, verdict, diff.Different)
		}
	}
	byUser := plain
	byUser.Kubelet = rules.MatchCgroup{}
	other := byUser
	other.KubeletUID = 1000
	if rules.Equal(compileHost(t, byUser), compileHost(t, other)) {
		t.Error("without a cgroup the rules must depend on the kubelet's user")
	}
	plain.Pods = nil
	if rs := compileHost(t, plain); len(rs.Tables[0].Chains) > 0 {
		t.Errorf("want no rules without pods, got\n%s", rs)
	}
}

// A cgroup needs a path or an ID, and the level of the path.
func TestInvalidCgroupsOfTheKubeletAreErrors(t *testing.T) {
	for _, c := range []rules.MatchCgroup{{Level: 1}, {Path: "a"}, {ID: 7}, {Path: "a/b", Level: 1}} {
		h := rules.DefaultAmbientHost()
		h.Kubelet = c
		if err := h.Validate(); err == nil || !strings.Contains(err.Error(), "Kubelet: ") {
			t.Errorf("%+v: error %v, want one about Kubelet", c, err)
		}
	}
}

func TestAmbientHostErrorsAreReportedTogether(t *testing.T) {
	_, err := rules.CompileAmbientHost(rules.AmbientHost{
		Pods:            []netip.Addr{netip.MustParseAddr("fe80::1%eth0"), {}},
		ProbeSourceIPv6: netip.MustParseAddr("10.0.0.1"), ProbeMark: 3,
		Kubelet: rules.MatchCgroup{Path: "a/b", Level: 1},
		Without: []rules.DeviationID{"none"},
	})
	for _, want := range []string{
		`ProbeSourceIPv4: "invalid IP" is not allowed`, `ProbeSourceIPv6: "10.0.0.1" is not allowed`,
		`Pods: "fe80::1%eth0" is not allowed: want the address of a pod`, `Pods: "invalid IP"`,
		`ProbeMark: "3" is not allowed: want a mark with one bit`, `Kubelet: `, `Without: `,
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want one that contains %s", err, want)
		}
	}
}
