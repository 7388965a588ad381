package compat_test

import (
	"net/netip"
	"os/exec"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/sluice-mesh/sluice/compat"
	"github.com/sluice-mesh/sluice/nft"
	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
	"github.com/sluice-mesh/sluice/rules"
)

// TestCheckFindsWhatSomebodyHasPutIntoOurRouting: with either engine, which have the routing in common.
func TestCheckFindsWhatSomebodyHasPutIntoOurRouting(t *testing.T) {
	for _, e := range engines {
		t.Run(string(e), func(t *testing.T) {
			ns := netnstest.New(t)
			b, want := chosen(t, e), compiled(t, tproxy, dual)
			applied(t, b, ns, want, nft.Created)
			ip := netnstest.RequireBinary(t, "ip")
			for _, args := range []string{
				"-6 route add blackhole fd00::/16 table 133", "-4 rule add pref 133 from 10.0.0.1 lookup main", "-4 rule add pref 133 fwmark 7 lookup 9",
			} {
				if err := ns.Do(func() error { return exec.Command(ip, strings.Fields(args)...).Run() }); err != nil {
					t.Fatalf("ip %s: %v", args, err)
				}
			}
			foreign := []string{
				"extra in routing: ip -4 rule priority 133 from 10.0.0.1/32 lookup 254",
				"extra in routing: ip -6 route blackhole fd00::/16 dev lo table 133 metric 1024",
			}
			stale := "extra in routing: ip -4 rule priority 133 fwmark 0x7 lookup 9, without its route"
			check := func(texts ...string) {
				t.Helper()
				found, err := b.Check(ns, want)
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(strings.Join(texts, "\n"), lines(found.Differences)); diff != "" {
					t.Errorf("-want +found\n%s", diff)
				}
			}
			check(append([]string{stale}, foreign...)...)
			if result, err := b.Apply(ns, want); err != nil || result.Outcome != nft.Updated || result.Routes != 1 {
				t.Errorf("%+v, %v, want that the rule which is ours is removed", result, err)
			}
			check(foreign...)
		})
	}
}

// TestRecheckFindsWhatCheckFinds, whatever has happened since the last comparison.
func TestRecheckFindsWhatCheckFinds(t *testing.T) {
	nftables, ip := netnstest.RequireBinary(t, "nft"), netnstest.RequireBinary(t, "ip")
	for name, command := range map[string][]string{
		"nothing":               nil,
		"our table flushed":     {nftables, "flush table inet sluice"},
		"our table deleted":     {nftables, "delete table inet sluice"},
		"a chain flushed":       {nftables, "flush chain inet sluice nat-output"},
		"a rule added to ours":  {nftables, "insert rule inet sluice nat-output accept"},
		"another's table added": {nftables, "add table ip others"},
		"a route removed":       {ip, "-4 route flush table 133"},
		"a policy rule removed": {ip, "-6 rule del pref 133"},
		"another's route added": {ip, "-6 route add blackhole fd00::/16 table 133"},
	} {
		for _, e := range engines {
			t.Run(name+"/"+string(e), func(t *testing.T) {
				if command != nil && command[0] == nftables && e == compat.EngineLegacy {
					t.Skip("our table is nft's")
				}
				recheckAfter(t, e, compiled(t, tproxy, dual), command)
			})
		}
	}
}

// TestRecheckWithoutPolicyRoutes: of a redirected pod's routing a quick look tells whether it has changed.
func TestRecheckWithoutPolicyRoutes(t *testing.T) {
	ip := netnstest.RequireBinary(t, "ip")
	for name, command := range map[string]string{
		"nothing":                         "",
		"::6 removed":                     "-6 address del ::6/128 dev lo",
		"another's address added":         "-6 address add ::7/128 dev lo",
		"another's rule, elsewhere":       "-4 rule add pref 100 fwmark 7 lookup 99",
		"another's rule in our place":     "-4 rule add pref 133 fwmark 7 lookup 99",
		"a rule like ours, without route": "-6 rule add pref 133 fwmark 1337 lookup 133",
		"a route in our table":            "-4 route add blackhole 10.0.0.0/8 table 133",
	} {
		for _, e := range engines {
			t.Run(name+"/"+string(e), func(t *testing.T) {
				var with []string
				if command != "" {
					with = []string{ip, command}
				}
				recheckAfter(t, e, compiled(t, dual), with)
			})
		}
	}
}

// recheckAfter wants that after a command, nil for none, a namespace with the ruleset is rechecked as it is checked.
func recheckAfter(t *testing.T, e compat.Engine, want rules.Ruleset, command []string) {
	t.Helper()
	ns := netnstest.New(t)
	b := chosen(t, e)
	applied(t, b, ns, want, nft.Created)
	last, err := b.Check(ns, want)
	if err != nil || len(last.Differences) > 0 {
		t.Fatalf("%v, %v", last.Differences, err)
	}
	if command != nil {
		if err := ns.Do(func() error { return exec.Command(command[0], strings.Fields(command[1])...).Run() }); err != nil {
			t.Fatal(err)
		}
	}
	checked, err := b.Check(ns, want)
	if err != nil {
		t.Fatal(err)
	}
	again, err := b.Recheck(ns, want, last)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(checked, again, cmpopts.IgnoreUnexported(compat.Comparison{})); diff != "" {
		t.Errorf("-check +recheck\n%s", diff)
	}
}

// TestMendDoesWhatApplyDoes, after something has been found, and when something more has happened since.
func TestMendDoesWhatApplyDoes(t *testing.T) {
	nftables, ip := netnstest.RequireBinary(t, "nft"), netnstest.RequireBinary(t, "ip")
	const add, flush, remove = "insert rule inet sluice nat-output accept", "flush chain inet sluice nat-output", "delete table inet sluice"
	for _, row := range []struct{ name, found, since string }{
		{"a rule more", add, ""},
		{"a rule more, and another one since", add, add},
		{"a rule more, and no table since", add, remove},
		{"no table", remove, ""},
		{"an empty table", "flush table inet sluice", ""},
		{"nothing, and a rule more since", "", add},
		{"a policy rule less", "rule del pref 133", ""},
		{"a policy rule less, and an empty chain since", "rule del pref 133", flush},
	} {
		for _, e := range []compat.Engine{compat.EngineNFT, compat.EngineLegacy, compat.EngineAuto} {
			if ofTable := strings.Contains(row.found+row.since, "inet sluice"); ofTable && e == compat.EngineLegacy {
				continue
			}
			t.Run(row.name+"/"+string(e), func(t *testing.T) {
				t.Parallel()
				b, want := chosen(t, e), compiled(t, tproxy, dual)
				do := func(ns *netns.NS, command string) {
					program := nftables
					if strings.HasPrefix(command, "rule") {
						program, command = ip, "-6 "+command
					}
					if command == "" {
						return
					}
					if err := ns.Do(exec.Command(program, strings.Fields(command)...).Run); err != nil {
						t.Fatal(err)
					}
				}
				result := func(mend func(*netns.NS, compat.Comparison) (compat.Result, error)) compat.Result {
					ns := netnstest.New(t)
					applied(t, b, ns, want, nft.Created)
					do(ns, row.found)
					found, err := b.Check(ns, want)
					if err != nil {
						t.Fatal(err)
					}
					bare := row.found == remove || strings.HasPrefix(row.found, "flush table")
					if found.Rules == bare {
						t.Errorf("rules of ours: %t", found.Rules)
					}
					if read := e != compat.EngineLegacy && row.found != "" && row.found != remove; compat.HasReading(found) != read {
						t.Errorf("what was read is kept: %t", !read)
					}
					do(ns, row.since)
					result, err := mend(ns, found)
					if err != nil {
						t.Fatal(err)
					}
					if left, err := b.Check(ns, want); err != nil || len(left.Differences) > 0 {
						t.Errorf("%v, %v", left.Differences, err)
					}
					return result
				}
				apply := result(func(ns *netns.NS, _ compat.Comparison) (compat.Result, error) { return b.Apply(ns, want) })
				mend := result(func(ns *netns.NS, found compat.Comparison) (compat.Result, error) { return b.Mend(ns, want, found) })
				if diff := cmp.Diff(apply, mend); diff != "" {
					t.Errorf("-apply +mend\n%s", diff)
				}
			})
		}
	}
}

// TestAComparisonTellsWhetherThereAreRules with either engine.
func TestAComparisonTellsWhetherThereAreRules(t *testing.T) {
	for _, e := range engines {
		t.Run(string(e), func(t *testing.T) {
			ns := netnstest.New(t)
			b, want := chosen(t, e), compiled(t, dual)
			tells := func(rules bool) {
				t.Helper()
				if found, err := b.Check(ns, want); err != nil || found.Rules != rules {
					t.Errorf("%t, %v", found.Rules, err)
				}
			}
			tells(false)
			applied(t, b, ns, want, nft.Created)
			tells(true)
			if _, err := b.Remove(ns); err != nil {
				t.Fatal(err)
			}
			tells(false)
		})
	}
}

// TestMendUsesWhatCheckHasRead: the count of packets that it returns is that of the reading.
func TestMendUsesWhatCheckHasRead(t *testing.T) {
	nftables := netnstest.RequireBinary(t, "nft")
	for _, e := range []compat.Engine{compat.EngineNFT, compat.EngineAuto} {
		ns := netnstest.New(t)
		b, want := chosen(t, e), compiled(t, dual, func(r *rules.Redirect) {
			r.OutboundExcludeCIDRs = []netip.Prefix{netip.MustParsePrefix("10.0.0.0/24"), netip.MustParsePrefix("10.0.2.0/24")}
		})
		applied(t, b, ns, want, nft.Created)
		command := strings.Fields("add element inet sluice outbound-exclude-ipv4 { 30.0.0.0/8 }")
		if err := ns.Do(exec.Command(nftables, command...).Run); err != nil {
			t.Fatal(err)
		}
		found, err := b.Check(ns, want)
		if err != nil {
			t.Fatal(err)
		}
		compat.SetHits(found, 7)
		if result, err := b.Mend(ns, want, found); err != nil || result.Outcome != nft.Updated || result.Kept != 7 {
			t.Errorf("%s: %+v, %v", e, result, err)
		}
	}
}
