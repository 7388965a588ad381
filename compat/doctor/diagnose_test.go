package doctor

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/compat"
	"github.com/sluice-mesh/sluice/compat/bpf"
	"github.com/sluice-mesh/sluice/nft"
	"github.com/sluice-mesh/sluice/nft/route"
	"github.com/sluice-mesh/sluice/rules"
	"github.com/sluice-mesh/sluice/rules/diff"
)

// budget is the budget of the agent with more time, because the machine may be busy.
var budget = diff.Budget{Time: time.Minute, Memory: diff.AgentBudget.Memory}

// healthy returns the facts of a dual-stack pod without problems.
func healthy() Facts {
	return Facts{
		Kernel: "6.1.0-test",
		Budget: budget,
		Features: []nft.Support{
			{Feature: nft.FeatureTables},
			{Feature: nft.FeatureNAT},
			{Feature: nft.FeatureTProxy},
			{Feature: nft.FeatureZone},
		},
		Settings: map[string]string{
			"net.ipv4.conf.all.src_valid_mark": "0", "net.ipv4.conf.default.src_valid_mark": "0",
			"net.ipv4.conf.eth0.src_valid_mark":    "0",
			"net.ipv4.ip_local_port_range":         "32768\t60999",
			"net.ipv4.ip_local_reserved_ports":     "",
			"net.ipv6.conf.lo.disable_ipv6":        "0",
			"net.netfilter.nf_conntrack_tcp_loose": "1", "net.netfilter.nf_conntrack_count": "7",
			"net.netfilter.nf_conntrack_max": "262144",
		},
		Interfaces: []Interface{
			{
				Name: "lo", Up: true,
				Addrs: []netip.Addr{netip.MustParseAddr("127.0.0.1"), netip.IPv6Loopback()},
			},
			{
				Name: "eth0", Up: true,
				Addrs: []netip.Addr{
					netip.MustParseAddr("10.244.1.5"), netip.MustParseAddr("fd00::5"),
				},
			},
		},
		PolicyRules: []route.Rule{
			{Family: rules.IPv4, Priority: 0, Table: 255, Text: "ip -4 rule priority 0 lookup 255"},
			{
				Family: rules.IPv4, Priority: 32766, Table: 254,
				Text: "ip -4 rule priority 32766 lookup 254",
			},
		},
	}
}

func typical(mode rules.Mode) rules.Redirect {
	r := rules.DefaultRedirect()
	r.Mode = mode
	r.InboundPorts.All = true
	r.OutboundCIDRs.All = true
	r.DNS = rules.DNS{Capture: true, All: true}
	r.IPv6 = true
	return r
}

// natTable returns a foreign table with one NAT rule at output.
func natTable(name string, priority int, rule rules.Rule) rules.Table {
	return rules.Table{Family: rules.IPv4, Name: name, Chains: []rules.Chain{{
		Name: "out", Base: &rules.Base{Type: rules.NAT, Hook: rules.Output, Priority: priority},
		Rules: []rules.Rule{rule},
	}}}
}

var redirectHTTP = rules.Rule{
	Matches: []rules.Match{
		rules.MatchProtocol{Protocols: []rules.Protocol{rules.TCP}},
		rules.MatchPort{Side: rules.Destination, Ports: rules.Singles[uint16](80)},
	},
	Actions: []rules.Action{rules.RedirectTo{Port: 7777}},
}

// marking returns a foreign table with a rule that sets the mark of connections.
func marking(hook rules.Hook, mark uint32) rules.Table {
	return rules.Table{Name: "marks", Chains: []rules.Chain{{
		Name: "c", Base: &rules.Base{Type: rules.Filter, Hook: hook},
		Rules: []rules.Rule{{
			Actions: []rules.Action{rules.MixMark{Conntrack: true, Xor: mark}},
		}},
	}}}
}

// istioMangle contains the rule of istio-iptables that saves TPROXY's mark.
var istioMangle = rules.Table{Family: rules.IPv4, Name: "mangle", Chains: []rules.Chain{
	{
		Name: "PREROUTING",
		Base: &rules.Base{Type: rules.Filter, Hook: rules.Prerouting, Priority: -150},
		Rules: []rules.Rule{{
			Handle: 1,
			Matches: []rules.Match{
				rules.MatchProtocol{Protocols: []rules.Protocol{rules.TCP}},
				rules.MatchMark{Value: 1337, Mask: ^uint32(0)},
			},
			Actions: []rules.Action{rules.Count{}, rules.SaveMark{}},
		}},
	},
	{Name: "ISTIO_INBOUND"},
}}

func TestHealthyPodHasNoProblems(t *testing.T) {
	for _, mode := range []rules.Mode{rules.ModeRedirect, rules.ModeTProxy} {
		for _, f := range Diagnose(healthy(), typical(mode)) {
			if f.Severity == Problem || f.Severity == Warning {
				t.Errorf("%s: want no problem and no warning, got %+v", mode, f)
			}
		}
	}
}

// Sluice's rules in iptables-legacy need the address, like its rules in nf_tables.
func TestPassthroughAddressIsNotReportedWithLegacyRules(t *testing.T) {
	f := healthy()
	f.Interfaces[0].Addrs = append(f.Interfaces[0].Addrs, rules.PassthroughIPv6())
	f.Legacy = []LegacyTable{{
		Family: rules.IPv6, Name: "nat", Chains: []string{"SLUICE_OUTPUT"}, Rules: 9,
	}}
	for _, x := range Diagnose(f, typical(rules.ModeRedirect)) {
		if strings.Contains(x.Summary, "::6") {
			t.Errorf("want no finding about ::6, got %+v", x)
		}
	}
}

func TestAdviceKeepsReservedPorts(t *testing.T) {
	f := healthy()
	f.Settings["net.ipv4.ip_local_port_range"] = "15000 60999"
	f.Settings["net.ipv4.ip_local_reserved_ports"] = "15001,30000-32767"
	const want = "sysctl -w net.ipv4.ip_local_reserved_ports=15001,30000-32767,15006,15008,15053"
	findings := Diagnose(f, typical(rules.ModeRedirect))
	if !slices.ContainsFunc(findings, func(x Finding) bool { return x.Next == want }) {
		t.Errorf("no finding with the remedy %q in %+v", want, findings)
	}
}

// src_valid_mark applies to an interface if it is 1 for the interface or for all.
func TestAdviceClearsTheSourceMarkOfAllInterfaces(t *testing.T) {
	f := healthy()
	f.Settings["net.ipv4.conf.all.src_valid_mark"] = "1"
	f.Settings["net.ipv4.conf.eth0.100.src_valid_mark"] = "1"
	const want = "sysctl -w net.ipv4.conf.all.src_valid_mark=0" +
		" net.ipv4.conf.eth0/100.src_valid_mark=0"
	findings := Diagnose(f, typical(rules.ModeTProxy))
	if !slices.ContainsFunc(findings, func(x Finding) bool { return x.Next == want }) {
		t.Errorf("no finding with the remedy %q in %+v", want, findings)
	}
}

func TestDiagnose(t *testing.T) {
	tproxy, redirect := rules.ModeTProxy, rules.ModeRedirect
	strict := func(r *rules.Redirect) { r.StrictIstio() }
	v4 := func(r *rules.Redirect) { r.IPv6 = false }
	setting := func(name, value string) func(*Facts) {
		return func(f *Facts) { f.Settings[name] = value }
	}
	rule := func(r route.Rule) func(*Facts) {
		return func(f *Facts) { f.PolicyRules = append(f.PolicyRules, r) }
	}
	tables := func(list ...rules.Table) func(*Facts) { return func(f *Facts) { f.Tables = list } }
	compiled := func(mode rules.Mode, change func(*rules.Redirect)) rules.Table {
		r := typical(mode)
		if change != nil {
			change(&r)
		}
		return rules.MustCompile(r).Tables[0]
	}
	firewall := func(list ...rules.Rule) rules.Table {
		return rules.Table{Family: rules.Inet, Name: "firewall", Chains: []rules.Chain{{
			Name: "in",
			Base: &rules.Base{
				Type: rules.Filter, Hook: rules.Prerouting, Priority: -300, Drop: true,
			},
			Rules: list,
		}}}
	}
	legacy := func(table LegacyTable) func(*Facts) {
		return func(f *Facts) { f.Legacy = []LegacyTable{table} }
	}
	lacks := func(feature nft.Feature) func(*Facts) {
		return func(f *Facts) {
			f.Features = []nft.Support{{
				Feature: feature, Err: &nft.UnsupportedError{Feature: feature, Err: unix.ENOENT},
			}}
		}
	}
	legacyLacksNAT := func(backend compat.BackendName) func(*Facts) {
		return func(f *Facts) {
			feature := nft.Feature{Name: "table nat", Option: "CONFIG_IP_NF_NAT", Since: "2.6"}
			f.LegacyFeatures = []nft.Support{{
				Feature: feature, Err: &nft.UnsupportedError{Feature: feature, Err: unix.ENOENT},
			}}
			f.Backend = backend
		}
	}
	policyRoute := rules.PolicyRoute{Family: rules.IPv4, Mark: 1337, Table: 133}
	for name, row := range map[string]struct {
		mode     rules.Mode
		params   func(*rules.Redirect)
		facts    func(*Facts)
		severity Severity
		// contains is a part of the summary of a finding. If the facts cause no finding of their
		// own, this is a finding that also exists without them.
		contains string
		verdict  Verdict
	}{
		"the kernel lacks a needed feature": {
			tproxy, nil, lacks(nft.FeatureTProxy), Problem, "lacks transparent proxying", Prevented,
		},
		"the kernel lacks another feature": {
			redirect, nil, lacks(nft.FeatureTProxy), Note, "do not need it", Works,
		},
		"features could not be determined": {
			redirect, nil, func(f *Facts) { f.FeaturesErr = unix.EPERM }, Note,
			"its version is recent enough", Works,
		},
		"features of an old kernel could not be determined": {
			redirect, nil, func(f *Facts) {
				f.Kernel, f.FeaturesErr = "4.19.0", unix.EPERM
			}, Warning,
			"Linux 4.19.0 is older than 5.2", Works,
		},
		"features could not be determined, but Sluice's rules exist": {redirect, nil, func(f *Facts) {
			f.FeaturesErr, f.Tables = unix.EPERM, []rules.Table{compiled(redirect, nil)}
			f.Interfaces[0].Addrs = append(f.Interfaces[0].Addrs, rules.PassthroughIPv6())
		}, OK, "already holds rules of Sluice", Works},
		"no permission to read rules": {redirect, nil, func(f *Facts) {
			f.TablesErr = unix.EPERM
		}, Problem, "may neither read nor write the namespace's rules: operation not permitted", Prevented},
		"the kernel has no nf_tables": {redirect, nil, func(f *Facts) {
			f.TablesErr = unix.EPROTONOSUPPORT
		}, Problem, "no nf_tables", Prevented},
		"reading the rules fails": {redirect, nil, func(f *Facts) {
			f.TablesErr = errors.New("busy")
		}, Warning, "cannot read the namespace's rules: busy", Works},

		"lo is down": {redirect, nil, func(f *Facts) {
			f.Interfaces[0].Up = false
		}, Problem, "lo is down", Degraded},
		"no address": {redirect, v4, func(f *Facts) {
			f.Interfaces = f.Interfaces[:1]
		}, Warning, "no interface except lo has an address", Works},
		"IPv6 is not captured": {
			redirect, v4, nil, Warning,
			"eth0 has the address fd00::5, but these parameters do not capture IPv6", Works,
		},
		"the agent reports IPv6 that is not captured": {redirect, v4, func(f *Facts) {
			f.IPv6Bypass = "IPv6 traffic of fd00::5 bypasses the proxy"
		}, Problem, "IPv6 is not captured: IPv6 traffic of fd00::5 bypasses the proxy", Degraded},
		"the agent does not know whether IPv6 bypasses the proxy": {redirect, v4, func(f *Facts) {
			f.IPv6Unknown = "the pod's addresses cannot be read: too many open files"
		}, Warning, "it is unknown whether IPv6 traffic bypasses the proxy: the pod's addresses cannot " +
			"be read: too many open files", Works},
		"IPv6 disabled": {
			redirect, nil, setting("net.ipv6.conf.lo.disable_ipv6", "1"), Problem,
			"IPv6 is disabled for lo", Degraded,
		},
		"no IPv6": {
			redirect, nil, func(f *Facts) {
				delete(f.Settings, "net.ipv6.conf.lo.disable_ipv6")
			}, Problem,
			"the kernel has no IPv6", Prevented,
		},

		"no /proc": {redirect, nil, func(f *Facts) {
			f.SettingsErr = unix.ENOENT
		}, Warning, "cannot read sysctls", Works},
		"source mark and TPROXY": {
			tproxy, nil, setting("net.ipv4.conf.eth0.src_valid_mark", "1"), Problem, "1 for eth0",
			Degraded,
		},
		"source mark and REDIRECT": {
			redirect, nil, setting("net.ipv4.conf.all.src_valid_mark", "1"), Note, "not REDIRECT",
			Works,
		},
		"source mark for later interfaces": {
			tproxy, nil, setting("net.ipv4.conf.default.src_valid_mark", "1"), OK,
			"0 for all interfaces",
			Works,
		},
		"conntrack does not pick up established connections": {
			redirect, nil, setting("net.netfilter.nf_conntrack_tcp_loose", "0"), Warning,
			"its packets are invalid and bypass the proxy", Works,
		},
		"conntrack is full": {
			redirect, nil, setting("net.netfilter.nf_conntrack_count", "262144"), Problem,
			"table is full", Degraded,
		},
		"conntrack is nearly full": {
			redirect, nil, setting("net.netfilter.nf_conntrack_count", "250000"), Warning,
			"nearly full", Works,
		},
		"conntrack has no limit": {redirect, nil, func(f *Facts) {
			f.Settings["net.netfilter.nf_conntrack_max"],
				f.Settings["net.netfilter.nf_conntrack_count"] = "0", "9"
		}, OK, "src_valid_mark", Works},
		"the proxy's ports are ephemeral ports": {
			redirect, nil, setting("net.ipv4.ip_local_port_range", "1024\t65535"), Warning,
			"contains the proxy's ports 15001,15006,15008,15053", Works,
		},
		"all but one of the proxy's ports are ephemeral ports": {redirect, nil, func(f *Facts) {
			f.Settings["net.ipv4.ip_local_port_range"] = "15000 15010"
			f.Settings["net.ipv4.ip_local_reserved_ports"] = "15001-15006"
		}, Warning, "contains the proxy's ports 15008:", Works},

		"an earlier policy rule matches all packets": {
			tproxy, nil,
			rule(route.Rule{Family: rules.IPv4, Priority: 100, Table: 77, Text: "all to 77"}),
			Problem, "match another rule first: all to 77", Degraded,
		},
		"an earlier policy rule matches a part of the mark": {tproxy, nil, rule(route.Rule{
			Family: rules.IPv4, Priority: 9, Table: 7, Mark: 0x500, Mask: 0xf00,
			Text: "part",
		}), Problem, "match another rule first: part", Degraded},
		"an earlier policy rule matches another mark": {
			tproxy, nil,
			rule(route.Rule{Family: rules.IPv4, Priority: 9, Table: 7, Mark: 0x600, Mask: 0xf00}),
			OK, "src_valid_mark", Works,
		},
		"a policy rule with other selectors": {
			tproxy, nil, rule(route.Rule{
				Family: rules.IPv4, Priority: 9, Table: 7, HasOthers: true, Text: "from x",
			}),
			Warning, "may match another rule first: from x", Works,
		},
		"a policy rule of equal priority before Sluice's": {tproxy, nil, func(f *Facts) {
			f.PolicyRules = []route.Rule{
				{Family: rules.IPv4, Priority: rules.PolicyPriority, Table: 7, Text: "equal"},
				{Family: rules.IPv4, Priority: rules.PolicyPriority, Mark: 1337, Mask: ^uint32(0), Table: 133},
			}
		}, Problem, "match another rule first: equal", Degraded},
		"a policy rule of equal priority after Sluice's": {tproxy, nil, func(f *Facts) {
			f.PolicyRules = []route.Rule{
				{Family: rules.IPv4, Priority: rules.PolicyPriority, Mark: 1337, Mask: ^uint32(0), Table: 133},
				{Family: rules.IPv4, Priority: rules.PolicyPriority, Table: 7, Text: "equal"},
			}
		}, OK, "src_valid_mark", Works},
		"the first policy rule drops all packets": {redirect, nil, func(f *Facts) {
			drop := route.Rule{
				Family: rules.IPv4, Priority: 50, HasOthers: true, DropsAll: true, Text: "blackhole",
			}
			f.PolicyRules = append([]route.Rule{drop}, f.PolicyRules...)
		}, Problem, "the first policy rule drops all packets, also those to the proxy: blackhole", Degraded},
		"a later policy rule that drops packets": {
			redirect, nil, rule(route.Rule{Family: rules.IPv4, Priority: 50, HasOthers: true, DropsAll: true}),
			OK, "src_valid_mark", Works,
		},
		"an IPv6 rule that drops packets while only IPv4 is captured": {
			redirect, v4, rule(route.Rule{Family: rules.IPv6, HasOthers: true, DropsAll: true}), OK,
			"src_valid_mark", Works,
		},
		"a later policy rule": {
			tproxy, nil, rule(route.Rule{Family: rules.IPv4, Priority: 500, Table: 7}), OK,
			"src_valid_mark", Works,
		},
		"Istio's rule twice": {redirect, nil, func(f *Facts) {
			istio := route.Rule{
				Family: rules.IPv4, Priority: 32765, Table: policyRoute.Table, Mark: policyRoute.Mark,
				Mask: ^uint32(0),
			}
			f.PolicyRules = append(f.PolicyRules, istio, istio)
		}, Note, "IPv4 has 2 rules for the mark 0x539", Works},
		"a foreign rule with Sluice's priority": {
			redirect, nil,
			rule(route.Rule{Family: rules.IPv4, Priority: 133, Table: 7, Text: "theirs"}), Note,
			"has the priority of Sluice's policy rules, 133: theirs", Works,
		},
		"a foreign route in Sluice's routing table": {tproxy, nil, func(f *Facts) {
			f.Routes = []route.Route{{
				Family: rules.IPv4, Table: 133, IsDefault: true, Text: "default via 10.0.0.1",
			}}
		}, Problem, "has a foreign route: default via 10.0.0.1", Degraded},
		"::6 is missing": {
			redirect, nil, tables(compiled(redirect, nil)), Problem, "lo lacks ::6", Degraded,
		},
		"::6 is missing, with rules in iptables-legacy": {
			redirect, nil, legacy(LegacyTable{
				Family: rules.IPv6, Name: "nat", Chains: []string{"SLUICE_OUTPUT"}, Rules: 9,
			}), Problem, "lo lacks ::6", Degraded,
		},
		"::6 remains without rules": {redirect, nil, func(f *Facts) {
			f.Interfaces[0].Addrs = append(f.Interfaces[0].Addrs, rules.PassthroughIPv6())
		}, Note, "lo has ::6, but there are no rules of Sluice", Works},

		"foreign NAT runs first": {
			redirect, v4, tables(natTable("early", -150, redirectHTTP)), Problem,
			"with foreign rules it is redirected to port 7777 of this host by ip early out #1", Degraded,
		},
		"foreign NAT runs later": {
			redirect, v4, tables(natTable("late", -100, redirectHTTP)), Note,
			"after Sluice's (priority -110)", Works,
		},
		"strict: foreign NAT of equal priority, registered before Sluice's": {redirect, strict, func(f *Facts) {
			f.Tables = []rules.Table{compiled(redirect, strict), natTable("same", -100, redirectHTTP)}
			f.Interfaces[0].Addrs = append(f.Interfaces[0].Addrs, rules.PassthroughIPv6())
		}, Note, "after Sluice's (priority -100)", Works},
		"strict: foreign NAT of equal priority, registered after Sluice's": {
			redirect, strict, tables(natTable("same", -100, redirectHTTP), compiled(redirect, strict)),
			Warning,
			"(chain out, priority -100), before Sluice's (priority -100)", Degraded,
		},
		"strict: foreign NAT of equal priority, without Sluice's rules": {
			redirect, strict, tables(natTable("same", -100, redirectHTTP)), Note,
			"after Sluice's (priority -100)", Works,
		},
		"foreign NAT redirects the proxy's connections": {
			redirect, v4, tables(natTable("early", -150, redirectHTTP)), Warning,
			"the proxy's outbound connections", Degraded,
		},
		"an unknown foreign rule": {redirect, v4, tables(natTable("odd", -150, rules.Rule{
			Matches: []rules.Match{rules.Unknown{Text: "numgen"}},
			Actions: []rules.Action{rules.Drop},
		})), Warning, "it is undecided: numgen", Works},
		"foreign rules drop, in a table with the name of Sluice's": {
			redirect, nil,
			tables(rules.Table{Family: rules.IPv4, Name: "sluice", Chains: []rules.Chain{{
				Name: "out", Base: &rules.Base{Type: rules.Filter, Hook: rules.Output, Priority: -400},
				Rules: []rules.Rule{{Matches: redirectHTTP.Matches, Actions: []rules.Action{rules.Drop}}},
			}}}), Problem, "it is dropped by ip sluice out #1: tcp dport 80 drop", Degraded,
		},
		"foreign rules assign a zone to captured connections": {
			redirect, nil,
			tables(rules.Table{Family: rules.IPv4, Name: "zones", Chains: []rules.Chain{{
				Name: "out", Base: &rules.Base{Type: rules.Filter, Hook: rules.Output, Priority: -300},
				Rules: []rules.Rule{{
					Matches: redirectHTTP.Matches, Actions: []rules.Action{rules.SetZone{Zone: 7}},
				}},
			}}}), Warning,
			"of this host, conntrack zone 7 by ip zones out #1: tcp dport 80 ct zone set 7", Works,
		},
		"foreign rules mark connections of the proxy": {
			tproxy, nil, tables(marking(rules.Output, 1337)), Warning,
			"foreign rules it goes to its destination, not captured, connection mark 0x539 by inet marks", Degraded,
		},
		"foreign rules set TPROXY's mark on connections at input": {
			tproxy, nil, tables(marking(rules.Input, 1337)), Problem,
			"table inet marks has 1 rule at input (chain c, priority 0): they set the mark 0x539",
			Degraded,
		},
		"foreign rules set another mark on connections at input": {
			tproxy, nil, tables(marking(rules.Input, 1338)), OK,
			"foreign rules do not affect the tested connections", Works,
		},
		"foreign rules set TPROXY's mark on connections at input, REDIRECT": {
			redirect, nil, tables(marking(rules.Input, 1337)), OK,
			"foreign rules do not affect the tested connections", Works,
		},
		"foreign rules assign zones first": {
			redirect, v4,
			tables(rules.Table{Family: rules.IPv4, Name: "zones", Chains: []rules.Chain{{
				Name: "out",
				Base: &rules.Base{Type: rules.Filter, Hook: rules.Output, Priority: -400},
				Rules: []rules.Rule{{
					Matches: redirectHTTP.Matches, Actions: []rules.Action{rules.SetZone{Zone: 7}},
				}},
			}}}), Warning, "before Sluice's (priority -310). They assign conntrack zones", Works,
		},
		"a chain to which foreign rules jump assigns zones first": {
			redirect, v4,
			tables(rules.Table{Family: rules.IPv4, Name: "zones", Chains: []rules.Chain{
				{
					Name: "out",
					Base: &rules.Base{Type: rules.Filter, Hook: rules.Output, Priority: -400},
					Rules: []rules.Rule{{
						Matches: redirectHTTP.Matches, Actions: []rules.Action{rules.Jump{Chain: "zone"}},
					}},
				},
				{Name: "zone", Rules: []rules.Rule{{Actions: []rules.Action{rules.SetZone{Zone: 7}}}}},
			}}), Warning, "before Sluice's (priority -310). They assign conntrack zones", Works,
		},
		"foreign mangle rules": {
			tproxy, v4,
			tables(rules.Table{Family: rules.IPv4, Name: "marks", Chains: []rules.Chain{{
				Name: "out",
				Base: &rules.Base{Type: rules.Route, Hook: rules.Output, Priority: -150},
				Rules: []rules.Rule{{
					Matches: redirectHTTP.Matches, Actions: []rules.Action{rules.SetMark{Value: 7, Mask: 7}},
				}},
			}}}), Note, "table ip marks has 1 rule at output (chain out, priority -150), after Sluice's (priority -160)", Works,
		},
		"foreign mangle rules at a hook without Sluice's": {
			redirect, v4,
			tables(rules.Table{Family: rules.IPv4, Name: "marks", Chains: []rules.Chain{{
				Name: "in",
				Base: &rules.Base{Type: rules.Filter, Hook: rules.Prerouting, Priority: -150},
				Rules: []rules.Rule{{
					Matches: redirectHTTP.Matches, Actions: []rules.Action{rules.SetMark{Value: 7, Mask: 7}},
				}},
			}}}), Note, "(chain in, priority -150), where Sluice has no rules", Works,
		},
		"a firewall drops by its policy": {
			redirect, v4, tables(firewall()), Problem,
			"it is dropped: chain inet firewall in drops by its policy", Degraded,
		},
		"a firewall counts, and drops by its policy": {
			redirect, v4,
			tables(firewall(rules.Rule{Handle: 1, Actions: []rules.Action{rules.Count{}}})),
			Problem, "it is dropped: chain inet firewall in drops by its policy", Degraded,
		},
		"a firewall drops by a rule": {
			redirect, v4,
			tables(firewall(rules.Rule{Handle: 1, Actions: []rules.Action{rules.Drop}})),
			Problem, "it is dropped by inet firewall in #1", Degraded,
		},
		"a rule at input drops in a chain that the base chain jumps to": {
			redirect, v4,
			tables(rules.Table{Family: rules.IPv4, Name: "theirs", Chains: []rules.Chain{
				{
					Name: "in", Base: &rules.Base{Type: rules.Filter, Hook: rules.Input},
					Rules: []rules.Rule{{Actions: []rules.Action{rules.Jump{Chain: "proxy"}}}},
				},
				{Name: "proxy", Rules: []rules.Rule{{
					Matches: redirectHTTP.Matches, Actions: []rules.Action{rules.Reject{}},
				}}},
			}}), Warning,
			"table ip theirs has 1 rule at input (chain in, priority 0) and can drop packets", Works,
		},
		"a chain at input drops by its policy": {
			redirect, v4,
			tables(rules.Table{Family: rules.IPv4, Name: "theirs", Chains: []rules.Chain{{
				Name: "in", Base: &rules.Base{Type: rules.Filter, Hook: rules.Input, Drop: true},
			}}}), Warning, "doctor does not evaluate rules at input", Works,
		},
		"a chain at input drops nothing": {
			redirect, v4,
			tables(rules.Table{Family: rules.IPv4, Name: "theirs", Chains: []rules.Chain{{
				Name: "in", Base: &rules.Base{Type: rules.Filter, Hook: rules.Input},
				Rules: []rules.Rule{{Actions: []rules.Action{rules.Count{}}}},
			}}}), OK, "at prerouting, output and postrouting", Works,
		},
		"rules of istio-nftables": {
			redirect, v4, tables(rules.Table{Family: rules.Inet, Name: "istio-proxy-nat"}), Warning,
			"has rules of istio-nftables", Works,
		},
		"rules of istio-cni in ambient mode": {
			redirect, v4, tables(rules.Table{Family: rules.Inet, Name: "istio-ambient-mangle"}), Warning,
			"has rules of istio-cni in ambient mode", Works,
		},
		"a table with a similar name that rules cleanup does not remove": {
			redirect, v4, tables(rules.Table{Family: rules.Inet, Name: "istio-proxy-other"}), OK,
			"do not affect the tested connections", Works,
		},
		"rules of istio-nftables with TPROXY": {
			tproxy, v4, tables(rules.Table{Family: rules.Inet, Name: "istio-proxy-nat"}), Problem,
			"\"rules apply\" refuses TPROXY", Degraded,
		},
		"marks of istio-iptables with TPROXY": {
			tproxy, v4, tables(istioMangle), Problem, "that set TPROXY's mark 0x539 on connections",
			Degraded,
		},
		"marks of istio-iptables on a tested packet": {
			tproxy, v4, tables(istioMangle), Problem,
			"it is assigned to the transparent listener on port 15006, connection mark 0x539 by ip mangle PREROUTING #1", Degraded,
		},
		"marks of istio-iptables with REDIRECT": {
			redirect, v4, tables(istioMangle), Warning, "two programs capture here", Works,
		},
		"foreign connection marks": {
			tproxy, v4,
			tables(rules.Table{Family: rules.IPv4, Name: "theirs", Chains: []rules.Chain{{
				Name: "in", Base: istioMangle.Chains[0].Base,
				Rules: []rules.Rule{{Actions: []rules.Action{
					rules.SetMark{Value: 7, Mask: ^uint32(0)}, rules.SaveMark{},
				}}},
			}}}), OK, "do not affect the tested connections", Works,
		},
		"rules of istio-iptables": {
			redirect, v4,
			tables(rules.Table{Family: rules.IPv4, Name: "nat", Chains: []rules.Chain{
				{Name: "ISTIO_OUTPUT"},
			}}), Warning, "has rules of istio-iptables", Works,
		},

		"only iptables-legacy is available": {redirect, nil, func(f *Facts) {
			lacks(nft.FeatureNAT)(f)
			f.LegacyFeatures = []nft.Support{{Feature: nft.Feature{Name: "table nat"}}}
		}, OK, "supports the iptables-legacy features that these parameters need; iptables-legacy is used", Works},
		"only iptables-legacy is available, with --backend nft": {redirect, nil, func(f *Facts) {
			lacks(nft.FeatureNAT)(f)
			f.LegacyFeatures, f.Backend = []nft.Support{{Feature: nft.Feature{Name: "table nat"}}},
				compat.BackendNFT
		}, Problem, "lacks NAT in inet tables", Prevented},
		"both backends are available": {redirect, nil, func(f *Facts) {
			f.LegacyFeatures = []nft.Support{{Feature: nft.Feature{Name: "table nat"}}}
		}, OK, "also supports the iptables-legacy features that these parameters need", Works},
		"iptables-legacy is not available": {
			redirect, nil, legacyLacksNAT(""), Note,
			"lacks table nat: these parameters work only with nf_tables", Works,
		},
		"iptables-legacy is not available, with --backend legacy": {
			redirect, nil, legacyLacksNAT(compat.BackendLegacy), Problem,
			"lacks table nat, which these parameters need", Prevented,
		},
		"no backend is available": {redirect, nil, func(f *Facts) {
			legacyLacksNAT("")(f)
			lacks(nft.FeatureNAT)(f)
		}, Problem, "lacks table nat, which these parameters need", Prevented},
		"only iptables-legacy, without nf_tables": {redirect, nil, func(f *Facts) {
			f.TablesErr = unix.EPROTONOSUPPORT
			f.LegacyFeatures = []nft.Support{{Feature: nft.Feature{Name: "table nat"}}}
		}, Note, "no nf_tables", Works},
		"iptables-legacy could not be determined, with --backend legacy": {
			redirect, nil, func(f *Facts) {
				f.FeaturesErr, f.Backend = unix.EPERM, compat.BackendLegacy
			}, Note, "cannot determine which features", Works,
		},
		"legacy: Sluice's rules": {
			redirect, v4,
			legacy(LegacyTable{
				Family: rules.IPv4, Name: "nat", Chains: []string{"SLUICE_OUTPUT"}, Rules: 9,
			}), OK,
			"rules of Sluice are in iptables-legacy's tables nat (IPv4)", Works,
		},
		"legacy: Sluice's rules, and foreign NAT at a priority between both backends": {
			redirect, v4, func(f *Facts) {
				legacy(LegacyTable{
					Family: rules.IPv4, Name: "nat", Chains: []string{"SLUICE_OUTPUT"}, Rules: 9,
				})(f)
				tables(natTable("between", -105, redirectHTTP))(f)
			}, Problem, "redirected to port 7777 of this host by ip between out #1", Degraded,
		},
		"Sluice's rules in both backends": {redirect, v4, func(f *Facts) {
			legacy(LegacyTable{
				Family: rules.IPv4, Name: "nat", Chains: []string{"SLUICE_OUTPUT"}, Rules: 9,
			})(f)
			tables(compiled(redirect, v4))(f)
		}, Warning, "in iptables-legacy's tables nat (IPv4): both backends capture", Works},

		"legacy: empty": {
			redirect, nil, legacy(LegacyTable{Family: rules.IPv4, Name: "nat"}), Note, "is empty",
			Works,
		},
		"legacy: NAT": {
			redirect, nil, legacy(LegacyTable{Family: rules.IPv4, Name: "nat", Rules: 3}), Note,
			"run after Sluice's rules (priority -110)", Works,
		},
		"legacy: NAT, strict": {
			redirect, strict, legacy(LegacyTable{Family: rules.IPv4, Name: "nat", Rules: 3}),
			Warning,
			"the chain registered last runs first", Works,
		},
		"legacy: Istio's": {
			redirect, nil,
			legacy(LegacyTable{
				Family: rules.IPv6, Name: "nat", Chains: []string{"ISTIO_INBOUND"}, Rules: 3,
			}),
			Warning, "including rules of istio-iptables", Works,
		},
		"legacy: Istio's marks with TPROXY": {
			tproxy, nil,
			legacy(LegacyTable{
				Family: rules.IPv4, Name: "mangle", Chains: []string{"ISTIO_TPROXY"}, Rules: 3,
			}),
			Problem, "set TPROXY's mark 0x539 on connections", Degraded,
		},
		"legacy: Istio's NAT with TPROXY": {
			tproxy, nil,
			legacy(LegacyTable{
				Family: rules.IPv4, Name: "nat", Chains: []string{"ISTIO_OUTPUT"}, Rules: 3,
			}),
			Problem, "\"rules apply\" refuses TPROXY", Degraded,
		},
		"legacy: a filter": {
			redirect, nil, legacy(LegacyTable{Family: rules.IPv4, Name: "filter", Rules: 1}), Note,
			"filter of iptables-legacy (IPv4) has 1 rule", Works,
		},
		"legacy: unread": {
			redirect, nil, legacy(LegacyTable{Family: rules.IPv4, Name: "nat", Err: unix.EPERM}),
			Warning, "content is unknown", Works,
		},
		"legacy: unlisted": {redirect, nil, func(f *Facts) {
			f.LegacyErr = unix.EACCES
		}, Note, "cannot list the iptables-legacy tables", Works},
	} {
		t.Run(name, func(t *testing.T) {
			facts, params := healthy(), typical(row.mode)
			if row.facts != nil {
				row.facts(&facts)
			}
			if row.params != nil {
				row.params(&params)
			}
			findings := Diagnose(facts, params)
			found := false
			for _, f := range findings {
				found = found || f.Severity == row.severity && strings.Contains(f.Summary, row.contains)
				if f.Severity == Problem && f.Next == "" {
					t.Errorf("a problem without a next step: %+v", f)
				}
			}
			if !found || VerdictOf(findings) != row.verdict {
				t.Errorf("want %s: …%s…, verdict %q; got %q\n%s", row.severity, row.contains, row.verdict,
					VerdictOf(findings), list(findings))
			}
		})
	}
}

// TestIncompleteListsProveNothingMissing checks that an interrupted list is reported, and that
// objects that it lacks are not.
func TestIncompleteListsProveNothingMissing(t *testing.T) {
	facts, params := healthy(), typical(rules.ModeRedirect)
	facts.Tables = rules.MustCompile(params).Tables // and lo lacks ::6
	facts.Interfaces = facts.Interfaces[:1]
	facts.Interrupted = []string{"interfaces", "addresses"}
	findings := Diagnose(facts, params)
	text := list(findings)
	if !strings.Contains(text, "warning  interfaces  these lists changed during each attempt to read "+
		"them, and may be incomplete: interfaces, addresses\n") || VerdictOf(findings) != Works ||
		strings.Contains(text, "no interface except lo") {
		t.Errorf("want the verdict %q, only the incomplete lists, and nothing missing; got\n%s", Works, text)
	}
}

// TestSimilarFindingsAreLimited covers a pod with very many policy rules and routes. The more
// severe findings are not hidden by others.
func TestSimilarFindingsAreLimited(t *testing.T) {
	facts := healthy()
	add := func(n int, r route.Rule) {
		for range n {
			facts.PolicyRules = append(facts.PolicyRules, r)
		}
	}
	add(1000, route.Rule{Family: rules.IPv4, Priority: 9, HasOthers: true, Text: "from x"})
	add(13, route.Rule{Family: rules.IPv4, Priority: 9, Table: 7, Text: "all"})
	for range 11 {
		facts.Routes = append(facts.Routes, route.Route{Family: rules.IPv4, Table: 133, Text: "r"})
	}
	text := list(Diagnose(facts, typical(rules.ModeTProxy)))
	for want, n := range map[string]int{
		"may match another rule first: from x": 10, "warning  routing     policy rules like these: 990 more\n": 1,
		" match another rule first: all": 10, "problem  routing     policy rules like these: 3 more\n": 1,
		"has a foreign route: r": 10, "warning  routing     foreign routes in this table: 1 more\n": 1,
	} {
		if got := strings.Count(text, want); got != n {
			t.Errorf("%d findings with %q, want %d", got, want, n)
		}
	}
	if lines := strings.Count(text, "routing"); lines != 33 {
		t.Errorf("%d findings about routing, want 33:\n%s", lines, text)
	}
	facts = healthy()
	add(11, route.Rule{Family: rules.IPv4, Priority: rules.PolicyPriority, Table: 7, Text: "theirs"})
	if text := list(Diagnose(facts, typical(rules.ModeRedirect))); strings.Count(text, "133: theirs") != 10 ||
		!strings.Contains(text, "note     routing     policy rules like these: 1 more\n") {
		t.Errorf("want 10 notes and their number, got\n%s", text)
	}
}

func TestNextStepForUnreadableSysctls(t *testing.T) {
	for err, want := range map[error]string{
		unix.ENOENT: "mount /proc", unix.EPERM: "run rules doctor with this permission",
	} {
		facts := healthy()
		facts.SettingsErr = err
		findings := Diagnose(facts, typical(rules.ModeRedirect))
		if !slices.ContainsFunc(findings, func(f Finding) bool { return f.Next == want }) {
			t.Errorf("%v: no finding with the next step %q\n%s", err, want, list(findings))
		}
	}
}

func list(findings []Finding) string {
	b := new(strings.Builder)
	for _, f := range findings {
		fmt.Fprintf(b, "%-8s %-11s %s\n", f.Severity, f.Topic, f.Summary)
	}
	return b.String()
}

// Only the major and minor numbers are compared.
func TestKernelReleaseIsOlder(t *testing.T) {
	for _, row := range []struct {
		release, version string
		want             bool
	}{
		{"5.1.0", "5.2", true},
		{"5.2.0-rc1", "5.2", false},
		{"5.10.3-amd64", "5.2", false},
		{"4.19", "5.2", true},
		{"6.0.1", "5.2", false},
		{"odd", "5.2", false},
		{"2.6.13", "2.6.14", false},
	} {
		if got := isOlder(row.release, row.version); got != row.want {
			t.Errorf("%s is older than %s: %t, want %t", row.release, row.version, got, row.want)
		}
	}
}

func TestProgramsOutsideNetfilter(t *testing.T) {
	uid := uint32(0)
	for _, test := range []struct {
		name  string
		facts Facts
		want  Finding
	}{
		{
			"socket load balancing",
			Facts{Programs: bpf.Listing{Programs: []bpf.Program{{
				Hook: bpf.Connect4, At: "cgroup /kubepods", ID: 7, Name: "cil_sock4_connect",
				UID: &uid, Processes: []string{"cilium-agent[12]"},
			}}}},
			Finding{
				Topic: "programs", Severity: Warning,
				Summary: `eBPF program "cil_sock4_connect" (id 7, loaded by uid 0, open in cilium-agent[12]) runs at ` +
					"cgroup_inet4_connect of cgroup /kubepods: it can rewrite the destination of a connection (socket load balancing) " +
					"before Sluice's rules see it, so that excluded and included addresses and ports are compared with the rewritten destination",
				Next: "bpftool prog show id 7 on the node prints its details",
			},
		},
		{
			"a socket map",
			Facts{Programs: bpf.Listing{Programs: []bpf.Program{{
				Hook: bpf.SockOps, At: "cgroup /", ID: 8, SocketMap: "sockets",
			}}}},
			Finding{
				Topic: "programs", Severity: Warning,
				Summary: "eBPF program without a readable name (id 8) runs at cgroup_sock_ops of cgroup /: it uses the socket map " +
					"\"sockets\": data between sockets in the map bypasses the network stack and all rules",
				Next: "bpftool prog show id 8 on the node prints its details",
			},
		},
		{
			"a filter of tc",
			Facts{Programs: bpf.Listing{Filters: []bpf.Filter{{
				Hook: bpf.TCIngress, Interface: "eth0", Parent: "ffff:fff2", Kind: "u32",
			}}}},
			Finding{
				Topic: "programs", Severity: Warning,
				Summary: "a filter of tc of kind u32 runs at tc_ingress of interface eth0: it can drop, change or redirect packets " +
					"before Sluice's rules see them",
				Next: "tc filter show dev eth0 parent ffff:fff2 in the namespace prints its details",
			},
		},
		{
			"a filter of tc for packets to the proxy",
			Facts{Programs: bpf.Listing{Filters: []bpf.Filter{{
				Hook: bpf.TCEgress, Interface: "lo", Parent: "ffff:fff3", Kind: "u32",
			}}}},
			Finding{
				Topic: "programs", Severity: Warning,
				Summary: "a filter of tc of kind u32 runs at tc_egress of interface lo: it can drop, change or redirect packets " +
					"that the rules have redirected to the proxy",
				Next: "tc filter show dev lo parent ffff:fff3 in the namespace prints its details",
			},
		},
		{
			"unread programs",
			Facts{Programs: bpf.Listing{Unread: []string{"a", "b"}}},
			Finding{
				Topic: "programs", Severity: Note,
				Summary: "not all eBPF programs are known: a; b",
			},
		},
		{
			"a packet socket",
			Facts{Sockets: []RawSocket{{
				Packet: true, UID: 5, Processes: []string{"tcpdump[9]"},
			}}},
			Finding{
				Topic: "sockets", Severity: Note,
				Summary: "a packet socket (AF_PACKET) of tcpdump[9] (uid 5) is open: it receives copies of packets, as tcpdump does; " +
					"packets that it sends bypass all rules",
			},
		},
		{
			"two packet sockets of many processes",
			Facts{Sockets: []RawSocket{
				{Packet: true, Processes: []string{"d[4]", "c[3]", "b[2]", "a[1]"}},
				{Packet: true, Processes: []string{"a[1]", "b[2]", "c[3]", "d[4]"}},
			}},
			Finding{
				Topic: "sockets", Severity: Note,
				Summary: "a packet socket (AF_PACKET) of a[1], b[2], c[3] (uid 0) is open (and 1 more): it receives copies of packets, " +
					"as tcpdump does; packets that it sends bypass all rules",
			},
		},
		{
			"sockets of many users",
			Facts{Sockets: rawSocketsOfUsers(1000)},
			Finding{
				Topic: "sockets", Severity: Note,
				Summary: "a raw IP socket of 990 other groups of processes is open",
			},
		},
		{
			"a raw socket",
			Facts{Sockets: []RawSocket{{}}},
			Finding{
				Topic: "sockets", Severity: Note,
				Summary: "a raw IP socket of an unknown process (uid 0) is open: packets that it sends traverse Sluice's rules, but only " +
					"TCP and DNS are captured",
			},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			findings := Diagnose(test.facts, rules.DefaultRedirect())
			if !slices.Contains(findings, test.want) {
				t.Errorf("want %+v among %+v", test.want, findings)
			}
		})
	}
}

func rawSocketsOfUsers(n int) []RawSocket {
	sockets := make([]RawSocket, n)
	for i := range sockets {
		sockets[i].UID = uint32(i)
	}
	return sockets
}
