package rules_test

import (
	"testing"

	"github.com/sluice-mesh/sluice/rules"
)

func TestCapturesNothing(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(*rules.Redirect)
		want   bool
	}{
		{"the default parameters", func(*rules.Redirect) {}, true},
		{"all inbound ports", func(r *rules.Redirect) { r.InboundPorts.All = true }, false},
		{"one inbound port", func(r *rules.Redirect) { r.InboundPorts.Ports = ports("80") }, false},
		{"all destinations", func(r *rules.Redirect) { r.OutboundCIDRs.All = true }, false},
		{"a prefix", func(r *rules.Redirect) {
			r.OutboundCIDRs.Prefixes = must(rules.ParsePrefixes("10.0.0.0/8"))
		}, false},
		{"an outbound port", func(r *rules.Redirect) { r.OutboundPorts = ports("80") }, false},
		{"all destinations, but no group", func(r *rules.Redirect) {
			r.OutboundCIDRs.All, r.OwnerGroups = true, rules.GroupSelection{}
		}, true},
		{"all DNS", func(r *rules.Redirect) { r.DNS = rules.DNS{Capture: true, All: true} }, false},
		{"DNS without servers", func(r *rules.Redirect) { r.DNS.Capture = true }, true},
		{"all DNS, but no group", func(r *rules.Redirect) {
			r.DNS, r.OwnerGroups = rules.DNS{Capture: true, All: true}, rules.GroupSelection{}
		}, true},
		{"a rerouted interface with all destinations, but no group", func(r *rules.Redirect) {
			r.OutboundCIDRs.All, r.OwnerGroups = true, rules.GroupSelection{}
			r.RerouteInterfaces = []rules.InterfaceName{{Name: "net1"}}
		}, false},
		{"a rerouted interface without destinations", func(r *rules.Redirect) {
			r.RerouteInterfaces = []rules.InterfaceName{{Name: "net1"}}
		}, true},
	} {
		r := rules.DefaultRedirect()
		tc.change(&r)
		if got := r.CapturesNothing(); got != tc.want {
			t.Errorf("%s: CapturesNothing is %t, want %t", tc.name, got, tc.want)
		}
	}
}
