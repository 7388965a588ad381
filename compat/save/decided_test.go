package save_test

import (
	"bytes"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-mesh/sluice/compat/save"
	"github.com/sluice-mesh/sluice/rules"
	"github.com/sluice-mesh/sluice/rules/diff"
	"github.com/sluice-mesh/sluice/rules/rulestest"
)

// savedRulesets returns the ruleset of each file of testdata/programs, by file name.
func savedRulesets(t *testing.T) map[string]rules.Ruleset {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("testdata", "programs", "*.save"))
	if err != nil || len(files) == 0 {
		t.Fatalf("%d files, error %v, want at least one file", len(files), err)
	}
	found := map[string]rules.Ruleset{}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		tables, err := save.Parse(familyOfFile(file), file, bytes.NewReader(data))
		if err != nil {
			t.Fatal(err)
		}
		found[filepath.Base(file)] = rules.Ruleset{Tables: tables}
	}
	return found
}

// familyOfFile returns the family of the rules in a file of testdata/programs.
func familyOfFile(name string) rules.Family {
	if strings.HasSuffix(name, "-v6.save") {
		return rules.IPv6
	}
	return rules.IPv4
}

// TestRulesOfProgramsAreDecided compares the rules of each program with themselves, with the same
// rules and a rule that drops a port, and with the same rules and Sluice's rules. No unknown
// condition may make a packet undecided.
func TestRulesOfProgramsAreDecided(t *testing.T) {
	parameters := rules.DefaultRedirect()
	parameters.IPv6, parameters.InboundPorts = true, rules.PortSelection{All: true}
	parameters.OutboundCIDRs = rules.PrefixSelection{All: true}
	redirect := rules.MustCompile(parameters)
	dropped := rules.Table{Family: rules.Inet, Name: "other", Chains: []rules.Chain{{
		Name: "in", Base: &rules.Base{Hook: rules.Prerouting, Type: rules.Filter, Priority: -290},
		Rules: []rules.Rule{{
			Matches: []rules.Match{
				rules.MatchProtocol{Protocols: []rules.Protocol{rules.TCP}},
				rules.MatchPort{Side: rules.Destination, Ports: rules.Singles[uint16](4711)},
			},
			Actions: []rules.Action{rules.Drop},
		}},
	}}}
	saved := savedRulesets(t)
	for _, name := range rulestest.Sample(slices.Sorted(maps.Keys(saved)), os.Getenv) {
		rs := saved[name]
		with := func(tables ...rules.Table) rules.Ruleset {
			return rules.Ruleset{Tables: append(append([]rules.Table{}, tables...), rs.Tables...)}
		}
		for _, tc := range []struct {
			name  string
			other rules.Ruleset
			want  diff.Verdict
		}{
			{"itself", rs, diff.Equivalent},
			{"itself and a drop", with(dropped), diff.Different},
			{"itself and Sluice's rules", with(redirect.Tables...), diff.Different},
		} {
			t.Run(name+" and "+tc.name, func(t *testing.T) {
				r := diff.Decide(diff.Side{Ruleset: rs}, diff.Side{Ruleset: tc.other}, diff.Options{
					MaxClasses: 3, Families: []rules.Family{familyOfFile(name)},
				})
				if got := r.Verdict(); got != tc.want || len(r.Undecided) > 0 {
					t.Errorf("verdict %s and %d undecided conditions, want %s and none", got,
						len(r.Undecided), tc.want)
				}
				for _, u := range r.Undecided {
					t.Errorf("undecided: %s: %s", u.Text, u.Witness)
				}
				for _, c := range r.Classes {
					for _, o := range []diff.SideOutcome{c.Outcome.Left, c.Outcome.Right} {
						hasEffect := o.Outcome.Dropped || o.Outcome.Captured() || o.Outcome.DNATAddr.IsValid()
						if o.Decided == nil && (o.Reason == "" ||
							hasEffect && strings.HasPrefix(o.Reason, "no ")) {
							t.Errorf("%s: the reason %q does not explain the outcome %s", c.Witness,
								o.Reason, o.Outcome)
						}
					}
				}
			})
		}
	}
}

// TestPacketsOfProgramsAreDecided explains TCP, UDP and SCTP packets with addresses and ports in
// the rules of programs. The types of the addresses and the address of the interface are known, as
// on a node.
func TestPacketsOfProgramsAreDecided(t *testing.T) {
	for name, rs := range savedRulesets(t) {
		t.Run(name, func(t *testing.T) {
			packets := boundaryPackets(rs, familyOfFile(name))
			undecided := map[string]int{}
			for _, p := range packets {
				trace := diff.Explain(&rs, p)
				for _, outcome := range append(trace.Alternatives, trace.Outcome) {
					if outcome.Undecided != "" || outcome.UnknownMarks != "" {
						text := fmt.Sprint(outcome.Undecided, outcome.UnknownMarks)
						if undecided[text]++; undecided[text] == 1 {
							t.Errorf("%s is undecided: %s", p, text)
						}
					}
				}
			}
			// 12 packets have neither an address nor a port of the rules.
			if len(packets) < 24 {
				t.Errorf("only %d packets, want 24 or more", len(packets))
			}
		})
	}
}

// boundaryPackets returns packets with the first addresses and the first ports of the ranges that
// the rules match. It uses at most limit addresses and limit ports.
func boundaryPackets(rs rules.Ruleset, f rules.Family) []rules.Packet {
	const limit = 40
	own, other := netip.MustParseAddr("10.244.1.5"), netip.MustParseAddr("192.0.2.10")
	if f == rules.IPv6 {
		own, other = netip.MustParseAddr("fd00::5"), netip.MustParseAddr("2001:db8::10")
	}
	addresses, ports := map[netip.Addr]bool{own: true, other: true}, map[uint16]bool{8080: true}
	for _, table := range rs.Tables {
		for _, c := range table.Chains {
			for _, r := range c.Rules {
				for _, m := range r.Matches {
					switch m := m.(type) {
					case rules.MatchAddr:
						for _, a := range m.Ranges {
							if !a.From().IsUnspecified() && !a.From().IsMulticast() &&
								len(addresses) < limit {
								addresses[a.From()] = true
							}
						}
					case rules.MatchPort:
						for _, p := range m.Ports {
							if len(ports) < limit {
								ports[p.First] = true
							}
						}
					}
				}
			}
		}
	}
	var packets []rules.Packet
	for a := range addresses {
		for port := range ports {
			for _, protocol := range []rules.Protocol{rules.TCP, rules.UDP, rules.SCTP} {
				in := rules.Packet{
					Hook: rules.Prerouting, InInterface: "eth0", Protocol: protocol,
					Source:      netip.AddrPortFrom(other, 40000),
					Destination: netip.AddrPortFrom(a, port), InAddress: own,
					SourceType: rules.Unicast,
				}
				in.DestinationType = rules.Unicast
				if a == own || a.IsLoopback() {
					in.DestinationType = rules.Local
				}
				out := in
				out.Hook, out.InInterface, out.InAddress = rules.Output, "", netip.Addr{}
				out.OutInterface, out.Source = "eth0", netip.AddrPortFrom(own, 40000)
				if in.DestinationType == rules.Local {
					out.OutInterface = "lo"
				}
				out.SourceType = rules.Local
				out.Owner = &rules.Owner{UID: 1000, GID: 1000}
				if protocol == rules.TCP {
					in.Flags, out.Flags = rules.SYN, rules.SYN
				}
				packets = append(packets, in, out)
			}
		}
	}
	return packets
}
