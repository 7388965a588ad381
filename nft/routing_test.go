package nft

import (
	"net/netip"
	"testing"
	"time"

	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
	"github.com/sluice-mesh/sluice/nft/route"
	"github.com/sluice-mesh/sluice/rules"
)

func TestApplyRepairsRoutesOfEqualRules(t *testing.T) {
	ns := netnstest.New(t)
	want := example("tproxy-dual")
	mustApply(t, ns, want, Created)
	if _, err := route.Prune(ns, rules.Routing{}); err != nil {
		t.Fatal(err)
	}
	if result := mustApply(t, ns, want, Updated); result.Routes == 0 || result.Bytes != 0 {
		t.Errorf("result %+v, want routes and no transaction", result)
	}
	mustApply(t, ns, want, Unchanged)
}

// TestIstiosAddressIsNotChanged covers the address ::6 that istio-init adds to lo. Remove and Apply
// must not delete the address if the namespace had no rules of Sluice.
func TestIstiosAddressIsNotChanged(t *testing.T) {
	existing := rules.Routing{LoopbackAddrs: []netip.Addr{rules.PassthroughIPv6()}}
	for name, do := range map[string]func(*testing.T){
		"Remove without rules of Sluice": func(t *testing.T) {
			ns := netnstest.New(t)
			if _, err := route.Ensure(ns, existing); err != nil {
				t.Fatal(err)
			}
			if removed, err := Remove(ns); err != nil || removed {
				t.Errorf("removed %t, error %v, want no change", removed, err)
			}
			checkRoutes(t, ns, existing)
		},
		"a first installation without IPv6": func(t *testing.T) {
			ns := netnstest.New(t)
			if _, err := route.Ensure(ns, existing); err != nil {
				t.Fatal(err)
			}
			mustApply(t, ns, example("sidecar-ipv4"), Created)
			checkRoutes(t, ns, existing)
		},
	} {
		t.Run(name, do)
	}
}

// checkRoutes checks the routing of the namespace.
func checkRoutes(t *testing.T, ns *netns.NS, want rules.Routing) {
	t.Helper()
	got, err := route.Read(ns)
	if err != nil || !rules.Equal(rules.Ruleset{Routing: want}, rules.Ruleset{Routing: got}) {
		t.Errorf("routing %v, error %v, want %v", got, err, want)
	}
}

// holdLock holds the lock of a namespace until the test ends.
func holdLock(t *testing.T, ns *netns.NS) {
	t.Helper()
	// A process that a parallel test starts can hold a released lock until it executes its program,
	// because it inherits the descriptors.
	release, acquired, err := ns.Lock(time.Minute)
	if err != nil || !acquired {
		t.Fatalf("acquired the lock: %t, error %v, want true without an error", acquired, err)
	}
	t.Cleanup(release)
}

// TestApplySucceedsWithoutTheLock covers a process of the pod that holds the lock permanently.
func TestApplySucceedsWithoutTheLock(t *testing.T) {
	t.Parallel()
	ns := netnstest.New(t)
	holdLock(t, ns)
	want := example("tproxy-dual")
	mustApply(t, ns, want, Created)
	checkRoutes(t, ns, want.Routing)
}

// TestNoChangeNeedsNoLock checks that an Apply without a change does not wait for the lock.
func TestNoChangeNeedsNoLock(t *testing.T) {
	t.Parallel()
	ns := netnstest.New(t)
	want := example("exclusions-dual")
	mustApply(t, ns, want, Created)
	holdLock(t, ns)
	// Measure the shortest of several attempts: if Apply waited for the lock, each attempt would
	// take at least LockTimeout.
	shortest := time.Hour
	for range 10 {
		start := time.Now()
		mustApply(t, ns, want, Unchanged)
		if shortest = min(shortest, time.Since(start)); shortest < netns.LockTimeout {
			return
		}
	}
	t.Errorf("the shortest Apply took %s, want less than %s", shortest, netns.LockTimeout)
}

// TestRoutesOfRemainingRulesAreKept covers a replacement that fails after it has added missing
// routes. The routes are kept if the remaining rules need them, because a concurrent Apply of these
// rules may depend on them.
func TestRoutesOfRemainingRulesAreKept(t *testing.T) {
	for _, row := range []struct {
		present string
		kept    bool
	}{
		{"tproxy-dual", true},
		{"sidecar-ipv4", false},
	} {
		t.Run(row.present, func(t *testing.T) {
			t.Parallel()
			ns := netnstest.New(t)
			mustApply(t, ns, example(row.present), Created)
			if _, err := route.Prune(ns, rules.Routing{}); err != nil {
				t.Fatal(err)
			}
			rejected := example("tproxy-dual")
			c := rejected.Tables[0].Chain("nat-output")
			c.Rules = append(c.Rules,
				rules.Rule{Actions: []rules.Action{rules.Jump{Chain: "nowhere"}}})
			if _, err := Apply(ns, rejected); err == nil {
				t.Fatal("a jump to a missing chain was accepted, want an error")
			}
			var want rules.Routing
			if row.kept {
				want = rejected.Routing
			}
			checkRoutes(t, ns, want)
		})
	}
}
