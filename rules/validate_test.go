package rules_test

import (
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-mesh/sluice/rules"
)

func TestDefaultAndTypicalParametersAreValid(t *testing.T) {
	for name, r := range map[string]rules.Redirect{
		"istio-iptables without arguments": rules.DefaultRedirect(),
		"istio-init's default arguments":   typical(),
		"TPROXY mode with both families":   typical(tproxyMode, ipv6),
		"no mark in REDIRECT mode": typical(func(r *rules.Redirect) {
			r.TProxyMark = 0
		}),
		"nothing captured": typical(func(r *rules.Redirect) {
			r.InboundPorts.All, r.OutboundCIDRs.All = false, false
		}),
		"the maximum number of groups in Istio": typical(func(r *rules.Redirect) {
			r.OwnerGroups = rules.GroupSelection{IDs: make([]rules.IDRange, rules.MaxOwnerGroups)}
		}),
		"all deviations disabled": typical((*rules.Redirect).StrictIstio),
	} {
		if err := r.Validate(); err != nil {
			t.Errorf("%s is not valid: %v", name, err)
		}
	}
}

// faultyRedirects are changes that cause one fault each.
var faultyRedirects = []struct {
	name    string
	fault   func(*rules.Redirect)
	field   string
	value   string
	allowed string // substring of the allowed values
}{
	{"no mode", func(r *rules.Redirect) { r.Mode = "" }, "Mode", "", "REDIRECT or TPROXY"},
	{"a mode in lower case", func(r *rules.Redirect) {
		r.Mode = "tproxy"
	}, "Mode", "tproxy", "REDIRECT or TPROXY"},
	{"no outbound capture port", func(r *rules.Redirect) {
		r.ProxyPort = 0
	}, "ProxyPort", "0", "a port (1-65535)"},
	{"no inbound capture port", func(r *rules.Redirect) {
		r.InboundCapturePort = 0
	}, "InboundCapturePort", "0", "a port (1-65535)"},
	{"no tunnel port", func(r *rules.Redirect) {
		r.TunnelPort = 0
	}, "TunnelPort", "0", "a port (1-65535)"},
	{"no user of the proxy", func(r *rules.Redirect) {
		r.ProxyUIDs = nil
	}, "ProxyUIDs", "", "at least one user id"},
	{"no group of the proxy", func(r *rules.Redirect) {
		r.ProxyGIDs = nil
	}, "ProxyGIDs", "", "at least one group id"},
	{"no mark in TPROXY mode", func(r *rules.Redirect) {
		r.TProxyMark = 0
	}, "TProxyMark", "0", "1-4294967295 except 1338"},
	{"the mark of self-calls in TPROXY mode", func(r *rules.Redirect) {
		r.TProxyMark = 1338
	}, "TProxyMark", "1338", "except 1338"},
	{"no table in TPROXY mode", func(r *rules.Redirect) {
		r.TProxyRouteTable = 0
	}, "TProxyRouteTable", "0", "except 253 to 255"},
	{"the default table in TPROXY mode", func(r *rules.Redirect) {
		r.TProxyRouteTable = 253
	}, "TProxyRouteTable", "253", "except 253 to 255"},
	{"the local table in TPROXY mode", func(r *rules.Redirect) {
		r.TProxyRouteTable = 255
	}, "TProxyRouteTable", "255", "except 253 to 255"},
	{"a descending range of users", func(r *rules.Redirect) {
		r.ProxyUIDs[0].Last = 1
	}, "ProxyUIDs", "1337-1", "not above its last"},
	{"a descending range of groups", func(r *rules.Redirect) {
		r.ProxyGIDs[0].Last = 1
	}, "ProxyGIDs", "1337-1", "not above its last"},
	{
		"a descending range of inbound ports", func(r *rules.Redirect) {
			r.InboundPorts = rules.PortSelection{Ports: descending}
		},
		"InboundPorts", "9-8", "not above its last",
	},
	{
		"a descending range of excluded inbound ports", func(r *rules.Redirect) {
			r.InboundExcludePorts = descending
		},
		"InboundExcludePorts", "9-8", "not above its last",
	},
	{"a descending range of outbound ports", func(r *rules.Redirect) {
		r.OutboundPorts = descending
	}, "OutboundPorts", "9-8", "not above"},
	{
		"a descending range of excluded outbound ports", func(r *rules.Redirect) {
			r.OutboundExcludePorts = descending
		},
		"OutboundExcludePorts", "9-8", "not above its last",
	},
	{"a descending range of owner groups", func(r *rules.Redirect) {
		r.OwnerGroups = rules.GroupSelection{IDs: []rules.IDRange{{First: 9, Last: 8}}}
	}, "OwnerGroups", "9-8", "not above its last"},
	{"a descending range of excluded owner groups", func(r *rules.Redirect) {
		r.OwnerGroupsExclude = []rules.IDRange{{First: 9, Last: 8}}
	}, "OwnerGroupsExclude", "9-8", "not above its last"},
	{"all inbound ports and a list", func(r *rules.Redirect) {
		r.InboundPorts.Ports = ports("80")
	}, "InboundPorts", "[80]", "not both"},
	{
		"all addresses and a list", func(r *rules.Redirect) {
			r.OutboundCIDRs.Prefixes = prefixSelection("::/0").Prefixes
		},
		"OutboundCIDRs", "[::/0]", "not both",
	},
	{"all groups and a list", func(r *rules.Redirect) {
		r.OwnerGroups.IDs = ids("5")
	}, "OwnerGroups", "[5]", "not both"},
	{"more groups than Istio allows", func(r *rules.Redirect) {
		r.OwnerGroups = rules.GroupSelection{IDs: make([]rules.IDRange, rules.MaxOwnerGroups+1)}
	}, "OwnerGroups", "65 groups", "at most 64"},
	{"an invalid included prefix", func(r *rules.Redirect) {
		r.OutboundCIDRs = rules.PrefixSelection{Prefixes: make([]netip.Prefix, 1)}
	}, "OutboundCIDRs", "invalid Prefix", "a valid prefix"},
	{
		"an invalid excluded prefix", func(r *rules.Redirect) {
			r.OutboundExcludeCIDRs = make([]netip.Prefix, 1)
		},
		"OutboundExcludeCIDRs", "invalid Prefix", "a valid prefix",
	},
	{
		"an excluded interface without a name", func(r *rules.Redirect) {
			r.ExcludeInterfaces = make([]rules.InterfaceName, 1)
		},
		"ExcludeInterfaces", "", "the name of an interface",
	},
	{"a rerouted interface with an invalid name", func(r *rules.Redirect) {
		r.RerouteInterfaces = []rules.InterfaceName{{Name: "a/b"}}
	}, "RerouteInterfaces", "a/b", "the name of an interface"},
	{"no loopback prefix", func(r *rules.Redirect) {
		r.LoopbackCIDR = netip.Prefix{}
	}, "LoopbackCIDR", "invalid Prefix", "IPv4 loopback prefix"},
	{
		"a prefix that is not a loopback prefix", func(r *rules.Redirect) {
			r.LoopbackCIDR = netip.MustParsePrefix("10.0.0.0/8")
		},
		"LoopbackCIDR", "10.0.0.0/8", "IPv4 loopback prefix",
	},
	{"the zero address of a server", func(r *rules.Redirect) {
		r.DNS.Servers = make([]netip.Addr, 1)
	}, "DNS.Servers", "invalid IP", "an IP address"},
	{
		"a server with a zone", func(r *rules.Redirect) {
			r.DNS.Servers = []netip.Addr{netip.MustParseAddr("fe80::1%eth0")}
		},
		"DNS.Servers", "fe80::1%eth0", "without zone",
	},
	{"an unknown deviation", func(r *rules.Redirect) {
		r.Without = []rules.DeviationID{"nat-last"}
	}, "Without", "nat-last", "the id of a deviation"},
}

var descending = []rules.PortRange{{First: 9, Last: 8}}

func TestValidateNamesFieldValueAndAllowedValues(t *testing.T) {
	for _, tc := range faultyRedirects {
		r := typical(tproxyMode)
		tc.fault(&r)
		var faults rules.Faults
		if err := r.Validate(); !errors.As(err, &faults) || len(faults) != 1 {
			t.Errorf("%s: got %v, want one error", tc.name, err)
			continue
		}
		want := rules.Fault{
			Field: tc.field, Value: `"` + tc.value + `"`, Allowed: faults[0].Allowed,
		}
		if diff := cmp.Diff(want, faults[0]); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tc.name, diff)
		}
		if !strings.Contains(faults[0].Allowed, tc.allowed) {
			t.Errorf("%s: allowed is %q, want it to contain %q", tc.name, faults[0].Allowed,
				tc.allowed)
		}
	}
}

func TestValidateReportsAllErrors(t *testing.T) {
	r := rules.Redirect{
		Mode: rules.ModeTProxy, OutboundPorts: descending,
		OutboundExcludePorts: append(descending, descending...),
		DNS:                  rules.DNS{Servers: make([]netip.Addr, 1)},
		Without:              []rules.DeviationID{"x", rules.NATFirst, "y"},
	}
	err := r.Validate()
	var faults rules.Faults
	if !errors.As(err, &faults) {
		t.Fatalf("got %v, want Faults", err)
	}
	var fields []string
	for _, f := range faults {
		fields = append(fields, f.Field)
	}
	want := []string{
		"ProxyPort", "InboundCapturePort", "TunnelPort", "ProxyUIDs", "ProxyGIDs", "TProxyMark",
		"TProxyRouteTable",
		"OutboundPorts", "OutboundExcludePorts", "OutboundExcludePorts", "LoopbackCIDR",
		"DNS.Servers", "Without", "Without",
	}
	if diff := cmp.Diff(want, fields); diff != "" {
		t.Errorf("invalid fields (-want +got):\n%s", diff)
	}
	lines := strings.Split(err.Error(), "\n")
	if len(lines) != len(want) {
		t.Fatalf("%d lines for %d errors:\n%v", len(lines), len(want), err)
	}
	if line := `ProxyPort: "0" is not allowed: want a port (1-65535)`; lines[0] != line {
		t.Errorf("first line %q, want %q", lines[0], line)
	}
}

func TestDeviationsHaveReasonsAndParse(t *testing.T) {
	for _, d := range rules.Deviations {
		if got, err := rules.ParseDeviationID(string(d.ID)); err != nil || got != d.ID ||
			d.Reason == "" {
			t.Errorf("deviation %q (reason %q) is parsed as %q (%v)", d.ID, d.Reason, got, err)
		}
	}
	_, err := rules.ParseDeviationID("nat-last")
	for _, d := range rules.Deviations {
		if err == nil || !strings.Contains(err.Error(), string(d.ID)) {
			t.Errorf("the error %v does not list %s", err, d.ID)
		}
	}
}
