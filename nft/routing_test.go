package nft

import (
	"net/netip"
	"testing"

	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
	"github.com/sluice-mesh/sluice/nft/route"
	"github.com/sluice-mesh/sluice/rules"
)

func TestApplyMendsRoutesBesideEqualRules(t *testing.T) {
	ns := netnstest.New(t)
	want := example("tproxy-dual")
	applied(t, ns, want, Created)
	if _, err := route.Prune(ns, rules.Routing{}); err != nil {
		t.Fatal(err)
	}
	if result := applied(t, ns, want, Updated); result.Routes == 0 || result.Bytes != 0 {
		t.Errorf("%+v, want routes and no transaction", result)
	}
	applied(t, ns, want, Unchanged)
}

// TestIstiosAddressIsLeftAlone has ::6 on lo as istio-init leaves it, and no rules of ours.
func TestIstiosAddressIsLeftAlone(t *testing.T) {
	istios := rules.Routing{LoopbackAddrs: []netip.Addr{rules.PassthroughIPv6}}
	for name, do := range map[string]func(*testing.T){
		"by a removal of nothing": func(t *testing.T) {
			ns := netnstest.New(t)
			if _, err := route.Ensure(ns, istios); err != nil {
				t.Fatal(err)
			}
			if removed, err := Remove(ns); err != nil || removed {
				t.Errorf("removed %v, %v", removed, err)
			}
			wantRouting(t, ns, istios)
		},
		"by a first installation without IPv6": func(t *testing.T) {
			ns := netnstest.New(t)
			if _, err := route.Ensure(ns, istios); err != nil {
				t.Fatal(err)
			}
			applied(t, ns, example("sidecar-ipv4"), Created)
			wantRouting(t, ns, istios)
		},
	} {
		t.Run(name, do)
	}
}

func wantRouting(t *testing.T, ns *netns.NS, want rules.Routing) {
	t.Helper()
	got, err := route.Read(ns)
	if err != nil || !rules.Equal(rules.Ruleset{Routing: want}, rules.Ruleset{Routing: got}) {
		t.Errorf("routing %v, %v, want %v", got, err, want)
	}
}

// TestWhoHoldsTheLockOnlyDelays has a process of the pod take the lock and never let go.
func TestWhoHoldsTheLockOnlyDelays(t *testing.T) {
	t.Parallel()
	ns := netnstest.New(t)
	release, taken, err := ns.Lock(0)
	if err != nil || !taken {
		t.Fatalf("taken %v, %v", taken, err)
	}
	defer release()
	want := example("tproxy-dual")
	applied(t, ns, want, Created)
	wantRouting(t, ns, want.Routing)
}
