package nft

import (
	"errors"
	"net/netip"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"go4.org/netipx"
	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
	"github.com/sluice-mesh/sluice/nft/route"
	"github.com/sluice-mesh/sluice/rules"
)

// withInsertedRule returns a ruleset that has routes, with an additional third rule in the chain.
func withInsertedRule(chain string, r rules.Rule) rules.Ruleset {
	rs := example("tproxy-dual")
	c := rs.Tables[0].Chain(chain)
	c.Rules = slices.Insert(c.Rules, 2, r)
	return rs
}

// rejectedRuleset returns a ruleset that has routes and that the kernel rejects.
func rejectedRuleset() rules.Ruleset {
	return withInsertedRule("mangle-output", action(rules.RedirectTo{Port: 1}))
}

// overlappingRule returns a rule that matches 3000 ranges of addresses. Two of the ranges overlap.
// If set is not empty, the ranges are in a set with this name.
func overlappingRule(set string) rules.Rule {
	ranges := make([]netipx.IPRange, 0, 3000)
	for i := range cap(ranges) {
		from := netip.AddrFrom4([4]byte{10, byte(i >> 8), byte(i), 0})
		ranges = append(ranges, netipx.IPRangeFrom(from, from.Next()))
	}
	ranges[2500] = netipx.IPRangeFrom(ranges[2499].From(), ranges[2500].To())
	return rules.Rule{
		Matches: []rules.Match{rules.MatchAddr{Side: rules.Destination, Ranges: ranges, Set: set}},
		Actions: []rules.Action{rules.Return},
	}
}

// TestRejectionNamesTheRejectedObjectAndChangesNothing applies rulesets that the kernel rejects, to
// an empty namespace and over another ruleset.
func TestRejectionNamesTheRejectedObjectAndChangesNothing(t *testing.T) {
	for _, row := range []struct {
		name  string
		rs    rules.Ruleset
		errno unix.Errno
		want  []string
	}{
		{
			"a redirect in a chain that is not for NAT", rejectedRuleset(), unix.EOPNOTSUPP,
			[]string{"add rule inet sluice mangle-output #3: redirect to :1", "rules doctor"},
		},
		{
			"a jump to a missing chain",
			withInsertedRule("nat-output", action(rules.Jump{Chain: "nowhere"})), unix.ENOENT,
			[]string{
				"add rule inet sluice nat-output #3: jump nowhere", "no such file or directory",
			},
		},
		{
			"a jump from a chain to itself",
			withInsertedRule("nat-output", action(rules.Jump{Chain: "nat-output"})),
			unix.EOPNOTSUPP,
			[]string{"add rule inet sluice nat-output #3: jump nat-output"},
		},
		{
			"NAT before conntrack", func() rules.Ruleset {
				rs := example("tproxy-dual")
				base := rules.Base{Type: rules.NAT, Hook: rules.Output, Priority: -300}
				rs.Tables[0].Chains = append(rs.Tables[0].Chains, rules.Chain{
					Name: "early", Base: &base,
				})
				return rs
			}(), unix.EOPNOTSUPP,
			[]string{
				"add chain inet sluice early { type nat hook output priority -300; policy accept; }",
			},
		},
		{
			"overlapping elements of a named set", withInsertedRule("nat-output", overlappingRule("a-set")),
			unix.EEXIST,
			[]string{"add elements inet sluice a-set: 10.9.196.2"},
		},
		{
			"overlapping elements of an anonymous set", withInsertedRule("nat-output", overlappingRule("")),
			unix.EEXIST,
			[]string{"add elements inet sluice nat-output #3: ip daddr { 10.0.0.0/31"},
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			ns := netnstest.New(t)
			checkRejected(t, ns, row.rs, row.errno, row.want)
			checkEmpty(t, ns)
			mustApply(t, ns, example("tproxy-dual"), Created)
			checkRejected(t, ns, row.rs, row.errno, row.want)
			checkRuleset(t, ns, example("tproxy-dual"))
		})
	}
}

// checkRejected checks that Apply fails with the errno, that the error contains the texts in want,
// and that nothing changes.
func checkRejected(t *testing.T, ns *netns.NS, rs rules.Ruleset, errno unix.Errno, want []string) {
	t.Helper()
	before, generation, routing := nftCommand(t, ns, "", "-a", "list", "ruleset"),
		generationOf(t, ns), routes(t, ns)
	result, err := Apply(ns, rs)
	if !errors.Is(err, errno) {
		t.Fatalf("error %v, want %v", err, errno)
	}
	if result != (Result{}) {
		t.Errorf("result %+v, want an empty result", result)
	}
	var kernelErr *KernelError
	if !errors.As(err, &kernelErr) {
		t.Errorf("error of type %T, want a KernelError", err)
	}
	for _, text := range want {
		if !strings.Contains(err.Error(), text) {
			t.Errorf("the error does not contain %q: %.300v", text, err)
		}
	}
	if after := nftCommand(t, ns, "", "-a", "list", "ruleset"); after != before {
		t.Errorf("the ruleset changed from\n%s\nto\n%s", before, after)
	}
	if after := generationOf(t, ns); after != generation {
		t.Errorf("the generation changed from %d to %d, want no change", generation, after)
	}
	if after := routes(t, ns); !reflect.DeepEqual(after, routing) {
		t.Errorf("the routing changed from %v to %v", routing, after)
	}
}

// routes returns the routing of the namespace.
func routes(t *testing.T, ns *netns.NS) rules.Routing {
	t.Helper()
	routing, err := route.Read(ns)
	if err != nil {
		t.Fatal(err)
	}
	return routing
}

// TestIPv6RulesFailInANamespaceWithoutIPv6 uses a namespace in which a sysctl disables IPv6.
func TestIPv6RulesFailInANamespaceWithoutIPv6(t *testing.T) {
	ns := netnstest.New(t)
	err := ns.Do(func() error {
		return os.WriteFile("/proc/sys/net/ipv6/conf/all/disable_ipv6", []byte("1"), 0)
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"tproxy-dual", "exclusions-dual"} {
		if _, err := Apply(ns, example(name)); !errors.Is(err, route.ErrNoIPv6) ||
			IsNotPermitted(err) {
			t.Errorf("%s: %v, want %v", name, err, route.ErrNoIPv6)
		}
		checkEmpty(t, ns)
	}
	mustApply(t, ns, example("sidecar-ipv4"), Created)
}

// TestApplyRejectsOtherTables covers rulesets that are not exactly the table of Sluice.
func TestApplyRejectsOtherTables(t *testing.T) {
	ns := netnstest.New(t)
	two := example("sidecar-ipv4")
	two.Tables = append(two.Tables, rules.Table{Name: "other"})
	for _, rs := range []rules.Ruleset{
		{},
		two,
		{Tables: []rules.Table{{Name: "other"}}},
		{Tables: []rules.Table{{Name: rules.TableName, Family: rules.IPv4}}},
	} {
		if _, err := Apply(ns, rs); err == nil || !strings.Contains(err.Error(), "inet sluice") {
			t.Errorf("%v: error %v, want an error that names the table inet sluice", rs.Tables, err)
		}
	}
	checkEmpty(t, ns)
}
