package compat_test

import (
	"net/netip"
	"os/exec"
	"slices"
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

// TestCheckFindsForeignEntriesInSluicesRouting verifies that Check reports foreign policy rules and
// routes with both backends.
func TestCheckFindsForeignEntriesInSluicesRouting(t *testing.T) {
	for _, backendName := range backends {
		t.Run(string(backendName), func(t *testing.T) {
			ns := netnstest.New(t)
			b, want := chosen(t, backendName), compiled(t, tproxy, dual)
			applyAndCheck(t, b, ns, want, nft.Created)
			ip := netnstest.RequireBinary(t, "ip")
			for _, args := range []string{
				"-6 route add blackhole fd00::/16 table 133",
				"-4 rule add pref 133 from 10.0.0.1 lookup main",
				"-4 rule add pref 133 fwmark 7 lookup 9",
			} {
				if err := ns.Do(func() error {
					return exec.Command(ip, strings.Fields(args)...).Run()
				}); err != nil {
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
				found, err := b.Check(ns, want, compat.Snapshot{})
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(strings.Join(texts, "\n"),
					lines(found.Differences)); diff != "" {
					t.Errorf("differences (-want +got):\n%s", diff)
				}
			}
			check(append([]string{stale}, foreign...)...)
			if result, err := b.Apply(ns, want, compat.Snapshot{}); err != nil ||
				result.Outcome != nft.Updated || result.Routes != 1 {
				t.Errorf("result %+v, error %v, want outcome updated, because the stale rule is removed",
					result, err)
			}
			check(foreign...)
		})
	}
}

// TestCheckWithASnapshotEqualsAFullCheck verifies that Check with a snapshot detects every change
// since the snapshot.
func TestCheckWithASnapshotEqualsAFullCheck(t *testing.T) {
	nftables, ip := netnstest.RequireBinary(t, "nft"), netnstest.RequireBinary(t, "ip")
	for name, row := range map[string]struct {
		command []string
		differs bool
	}{
		"no change":              {nil, false},
		"Sluice's table flushed": {[]string{nftables, "flush table inet sluice"}, true},
		"Sluice's table deleted": {[]string{nftables, "delete table inet sluice"}, true},
		"a chain flushed":        {[]string{nftables, "flush chain inet sluice nat-output"}, true},
		"a rule added":           {[]string{nftables, "insert rule inet sluice nat-output accept"}, true},
		"a foreign table added":  {[]string{nftables, "add table ip others"}, false},
		"a route removed":        {[]string{ip, "-4 route flush table 133"}, true},
		"a policy rule removed":  {[]string{ip, "-6 rule del pref 133"}, true},
		"a foreign route added":  {[]string{ip, "-6 route add blackhole fd00::/16 table 133"}, true},
	} {
		for _, backendName := range backends {
			t.Run(name+"/"+string(backendName), func(t *testing.T) {
				if row.command != nil && row.command[0] == nftables && backendName == compat.BackendLegacy {
					t.Skip("the command changes the nftables table")
				}
				checkAgainAfter(t, backendName, compiled(t, tproxy, dual), row.command, row.differs)
			})
		}
	}
}

// TestCheckWithASnapshotOfAPodWithoutPolicyRoutes verifies that Check with a snapshot detects
// changes to the routing of a pod whose ruleset needs no policy routes.
func TestCheckWithASnapshotOfAPodWithoutPolicyRoutes(t *testing.T) {
	ip := netnstest.RequireBinary(t, "ip")
	for name, row := range map[string]struct {
		command string
		differs bool
	}{
		"no change":                               {"", false},
		"the address ::6 removed":                 {"-6 address del ::6/128 dev lo", true},
		"a foreign address added":                 {"-6 address add ::7/128 dev lo", false},
		"a foreign policy rule":                   {"-4 rule add pref 100 fwmark 7 lookup 99", false},
		"a policy rule with the form of Sluice's": {"-4 rule add pref 133 fwmark 7 lookup 99", true},
		"a rule of Sluice without its route":      {"-6 rule add pref 133 fwmark 1337 lookup 133", true},
		"a route in Sluice's table":               {"-4 route add blackhole 10.0.0.0/8 table 133", false},
	} {
		for _, backendName := range backends {
			t.Run(name+"/"+string(backendName), func(t *testing.T) {
				var change []string
				if row.command != "" {
					change = []string{ip, row.command}
				}
				checkAgainAfter(t, backendName, compiled(t, dual), change, row.differs)
			})
		}
	}
}

// checkAgainAfter verifies that, after the command (if not nil), Check with a snapshot returns the
// same result as Check without one. differs is set if the command causes differences.
func checkAgainAfter(
	t *testing.T, backendName compat.BackendName, want rules.Ruleset, command []string, differs bool,
) {
	t.Helper()
	ns := netnstest.New(t)
	b := chosen(t, backendName)
	applyAndCheck(t, b, ns, want, nft.Created)
	last, err := b.Check(ns, want, compat.Snapshot{})
	if err != nil || len(last.Differences) > 0 {
		t.Fatalf("differences %v, error %v; want none", last.Differences, err)
	}
	if command != nil {
		if err := ns.Do(func() error {
			return exec.Command(command[0], strings.Fields(command[1])...).Run()
		}); err != nil {
			t.Fatal(err)
		}
	}
	checked, err := b.Check(ns, want, compat.Snapshot{})
	if err != nil {
		t.Fatal(err)
	}
	if (len(checked.Differences) > 0) != differs {
		t.Errorf("differences %v, want some: %t", checked.Differences, differs)
	}
	second, err := b.Check(ns, want, last.Snapshot)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(checked, second, cmpopts.IgnoreUnexported(compat.Snapshot{})); diff != "" {
		t.Errorf("Check, -without +with the snapshot\n%s", diff)
	}
}

// TestApplyWithASnapshotEqualsAFullApply verifies that Apply with the snapshot of Check has the
// same result as Apply without a snapshot, even if the rules change again after Check.
func TestApplyWithASnapshotEqualsAFullApply(t *testing.T) {
	nftables, ip := netnstest.RequireBinary(t, "nft"), netnstest.RequireBinary(t, "ip")
	const (
		add    = "insert rule inet sluice nat-output accept"
		flush  = "flush chain inet sluice nat-output"
		remove = "delete table inet sluice"
	)
	for _, row := range []struct {
		name   string
		before string // the command before Check, or empty
		since  string // the command between Check and Apply, or empty
	}{
		{"an added rule", add, ""},
		{"an added rule, and another one after Check", add, add},
		{"an added rule, and a deleted table after Check", add, remove},
		{"no table", remove, ""},
		{"an empty table", "flush table inet sluice", ""},
		{"an added rule after Check", "", add},
		{"a deleted policy rule", "rule del pref 133", ""},
		{"a deleted policy rule, and a flushed chain after Check", "rule del pref 133", flush},
	} {
		for _, backendName := range []compat.BackendName{
			compat.BackendNFT, compat.BackendLegacy, compat.BackendAuto,
		} {
			if backendName == compat.BackendLegacy &&
				strings.Contains(row.before+row.since, "inet sluice") {
				continue
			}
			t.Run(row.name+"/"+string(backendName), func(t *testing.T) {
				t.Parallel()
				b, want := chosen(t, backendName), compiled(t, tproxy, dual)
				do := func(ns *netns.NS, command string) {
					program := nftables
					if strings.HasPrefix(command, "rule") {
						program, command = ip, "-6 "+command
					}
					if command == "" {
						return
					}
					if err := ns.Do(exec.Command(program,
						strings.Fields(command)...).Run); err != nil {
						t.Fatal(err)
					}
				}
				resultOf := func(apply func(
					*netns.NS, compat.Comparison,
				) (compat.Result, error),
				) compat.Result {
					ns := netnstest.New(t)
					applyAndCheck(t, b, ns, want, nft.Created)
					do(ns, row.before)
					found, err := b.Check(ns, want, compat.Snapshot{})
					if err != nil {
						t.Fatal(err)
					}
					wantRules := row.before != remove && !strings.HasPrefix(row.before, "flush table")
					if found.HasRules != wantRules {
						t.Errorf("HasRules is %t, want %t", found.HasRules, wantRules)
					}
					if read := backendName != compat.BackendLegacy && row.before != "" &&
						row.before != remove; compat.HasNFTRules(found.Snapshot) != read {
						t.Errorf("the snapshot contains rules: %t, want %t", !read, read)
					}
					do(ns, row.since)
					result, err := apply(ns, found)
					if err != nil {
						t.Fatal(err)
					}
					if left, err := b.Check(ns, want, compat.Snapshot{}); err != nil ||
						len(left.Differences) > 0 {
						t.Errorf("differences after Apply: %v, error %v; want none", left.Differences, err)
					}
					return result
				}
				without := resultOf(func(ns *netns.NS, _ compat.Comparison) (compat.Result, error) {
					return b.Apply(ns, want, compat.Snapshot{})
				})
				with := resultOf(func(
					ns *netns.NS, found compat.Comparison,
				) (compat.Result, error) {
					return b.Apply(ns, want, found.Snapshot)
				})
				if diff := cmp.Diff(without, with,
					cmp.AllowUnexported(compat.Result{})); diff != "" {
					t.Errorf("Apply, -without +with the snapshot\n%s", diff)
				}
			})
		}
	}
}

// TestComparisonReportsWhetherRulesExist verifies Comparison.HasRules with both backends.
func TestComparisonReportsWhetherRulesExist(t *testing.T) {
	for _, backendName := range backends {
		t.Run(string(backendName), func(t *testing.T) {
			ns := netnstest.New(t)
			b, rs := chosen(t, backendName), compiled(t, dual)
			wantHasRules := func(want bool) {
				t.Helper()
				if found, err := b.Check(ns, rs, compat.Snapshot{}); err != nil ||
					found.HasRules != want {
					t.Errorf("HasRules is %t, error %v, want %t", found.HasRules, err, want)
				}
			}
			wantHasRules(false)
			applyAndCheck(t, b, ns, rs, nft.Created)
			wantHasRules(true)
			if _, err := b.Remove(ns); err != nil {
				t.Fatal(err)
			}
			wantHasRules(false)
		})
	}
}

// TestApplyUsesTheSnapshotOfCheck verifies that Apply takes Result.EstablishedPackets from the
// snapshot.
func TestApplyUsesTheSnapshotOfCheck(t *testing.T) {
	nftables := netnstest.RequireBinary(t, "nft")
	for _, backendName := range []compat.BackendName{compat.BackendNFT, compat.BackendAuto} {
		ns := netnstest.New(t)
		b, want := chosen(t, backendName), compiled(t, dual, func(r *rules.Redirect) {
			r.KeepEstablished = true
			r.OutboundExcludeCIDRs = []netip.Prefix{
				netip.MustParsePrefix("10.0.0.0/24"), netip.MustParsePrefix("10.0.2.0/24"),
			}
		})
		applyAndCheck(t, b, ns, want, nft.Created)
		command := strings.Fields("add element inet sluice outbound-exclude-ipv4 { 30.0.0.0/8 }")
		if err := ns.Do(exec.Command(nftables, command...).Run); err != nil {
			t.Fatal(err)
		}
		found, err := b.Check(ns, want, compat.Snapshot{})
		if err != nil {
			t.Fatal(err)
		}
		compat.SetHits(found.Snapshot, 7)
		if result, err := b.Apply(ns, want, found.Snapshot); err != nil ||
			result.Outcome != nft.Updated || result.EstablishedPackets != 7 {
			t.Errorf("%s: Apply returned %+v, error %v, want outcome updated and 7 established packets",
				backendName, result, err)
		}
	}
}

// TestCheckAfterApplyDoesNotReadLegacyAgain verifies that Check with the snapshot of an Apply does
// not read iptables-legacy, because Apply has read it. Check without a snapshot, or after a change
// in nf_tables, reads iptables-legacy.
func TestCheckAfterApplyDoesNotReadLegacyAgain(t *testing.T) {
	nftables := netnstest.RequireBinary(t, "nft")
	ns := netnstest.New(t)
	b, want := chosen(t, compat.BackendNFT), compiled(t)
	result := applyAndCheck(t, b, ns, want, nft.Created)
	if _, err := compat.BeginApply(ns, []rules.Table{compat.WithGate()}, 1); err != nil {
		t.Fatal(err)
	}
	differences := func(since compat.Snapshot) string {
		found, err := b.Check(ns, want, since)
		if err != nil {
			t.Fatal(err)
		}
		return lines(found.Differences)
	}
	const inLegacy = "extra in iptables-legacy"
	if got := differences(result.Snapshot()); got != "" {
		t.Errorf("with the snapshot of Apply: %s, want no difference", got)
	}
	if got := differences(compat.Snapshot{}); !strings.Contains(got, inLegacy) {
		t.Errorf("without a snapshot: %q, want the rules in iptables-legacy", got)
	}
	command := strings.Fields("insert rule inet sluice nat-output accept")
	if err := ns.Do(exec.Command(nftables, command...).Run); err != nil {
		t.Fatal(err)
	}
	if got := differences(result.Snapshot()); !strings.Contains(got, inLegacy) ||
		!strings.Contains(got, "accept") {
		t.Errorf("after a change: %q, want the rule and the rules in iptables-legacy", got)
	}
}

// A process of the pod can replace Sluice's table with an equal one that it owns. The kernel
// deletes this table when the process ends, without a new generation.
func TestCheckReportsATableThatAProcessOwns(t *testing.T) {
	ns := netnstest.New(t)
	b, rs := chosen(t, compat.BackendNFT), compiled(t)
	applyAndCheck(t, b, ns, rs, nft.Created)
	check := func(prev compat.Snapshot, want string) compat.Snapshot {
		t.Helper()
		c, err := b.Check(ns, rs, prev)
		if err != nil || len(c.Differences) != 1 || c.Differences[0].String() != want {
			t.Fatalf("differences %v, error %v; want %q", c.Differences, err, want)
		}
		return c.Snapshot
	}
	inSync, err := b.Check(ns, rs, compat.Snapshot{})
	if err != nil || len(inSync.Differences) > 0 {
		t.Fatalf("differences %v, error %v; want none", inSync.Differences, err)
	}
	owned := rules.Ruleset{Tables: slices.Clone(rs.Tables)}
	owned.Tables[0].Owned = true
	release := netnstest.OwnTable(t, ns, "delete table inet sluice\n"+owned.String())
	prev := check(inSync.Snapshot, "changed in table inet sluice: want no owner, found flags owner")
	for _, prev := range []compat.Snapshot{prev, {}} {
		if result, err := b.Apply(ns, rs, prev); !nft.IsNotPermitted(err) || result.Outcome != "" {
			t.Errorf("result %+v, error %v; want the error that the table has an owner", result, err)
		}
	}
	release()
	check(prev, "missing in the ruleset: table inet sluice")
}
