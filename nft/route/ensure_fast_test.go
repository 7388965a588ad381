package route_test

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"

	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
	"github.com/sluice-mesh/sluice/nft/route"
	"github.com/sluice-mesh/sluice/nft/testbed"
	"github.com/sluice-mesh/sluice/rules"
)

// TestFastPathHasTheSameResult compares the fast path, which exists only for the namespace of the
// thread, with the slow path.
func TestFastPathHasTheSameResult(t *testing.T) {
	ensure := func(want rules.Routing, fast bool) (addrs []netlink.Addr, change route.Change) {
		n := netnstest.New(t)
		argument := n
		if fast {
			argument = nil // the namespace of the thread
		}
		if err := n.Do(func() (err error) {
			if change, err = route.Ensure(argument, want); err != nil {
				return err
			}
			lo, err := netlink.LinkByName("lo")
			if err != nil {
				return err
			}
			addrs, err = testbed.RetryDump(func() ([]netlink.Addr, error) {
				return netlink.AddrList(lo, netlink.FAMILY_V6)
			})
			if err != nil {
				return err
			}
			if change.Stale() {
				t.Error("a new namespace has stale objects")
			}
			if !route.InSync(want) {
				t.Errorf("fast path %t: the routing is not in sync", fast)
			}
			return change.Undo()
		}); err != nil {
			t.Fatal(err)
		}
		return addrs, change
	}
	for _, want := range []rules.Routing{nothing, onlyPassthrough} {
		slowAddrs, slow := ensure(want, false)
		fastAddrs, fast := ensure(want, true)
		flags := cmp.Transformer("flags", func(a netlink.Addr) string {
			return fmt.Sprintf("%s flags 0x%x scope %d", a, a.Flags, a.Scope)
		})
		if diff := cmp.Diff(slowAddrs, fastAddrs, flags); diff != "" {
			t.Errorf("addresses of lo (-slow path +fast path):\n%s", diff)
		}
		if fast.Len() != slow.Len() {
			t.Errorf("the fast path added %d objects, want %d", fast.Len(), slow.Len())
		}
	}
}

// TestFastPathRejectsARouteWithTypeOfService covers a route that does not apply to all packets.
func TestFastPathRejectsARouteWithTypeOfService(t *testing.T) {
	n := netnstest.New(t)
	ip(t, n, sluiceRule4, "-4 route add local default dev lo tos 0x10 table 133")
	if found, err := route.Read(n); err != nil || len(found.Policies) > 0 ||
		len(found.Unrouted) != 1 || len(found.Others) != 1 {
		t.Errorf("read %+v, error %v, want an unrouted rule and another route", found, err)
	}
	if err := n.Do(func() error {
		change, err := route.Ensure(nil, onlyIPv4)
		if change.Len() != 1 {
			t.Errorf("added %d objects, want 1, the route", change.Len())
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
}

// TestStaleRulesAreReported checks that with unwanted rules of Sluice, Ensure takes the slow path,
// which reports them.
func TestStaleRulesAreReported(t *testing.T) {
	for name, before := range map[string][]string{
		"an IPv4 rule": {sluiceRule4}, "an IPv6 rule": {sluiceRule6},
	} {
		n := netnstest.New(t)
		ip(t, n, before...)
		if err := n.Do(func() error {
			change, err := route.Ensure(nil, onlyPassthrough)
			if !change.Stale() || change.Len() != 1 {
				t.Errorf("%s: stale %t, added %d objects, want true and 1", name, change.Stale(),
					change.Len())
			}
			return err
		}); err != nil {
			t.Fatal(err)
		}
	}
}

// TestUndoKeepsAnExistingAddress checks that Undo keeps an address that Ensure has not added,
// because the address may belong to Istio.
func TestUndoKeepsAnExistingAddress(t *testing.T) {
	n := netnstest.New(t)
	ip(t, n, "-6 address add ::6/128 dev lo nodad")
	if err := n.Do(func() error {
		change, err := route.Ensure(nil, onlyPassthrough)
		if err != nil {
			return err
		}
		if change.Len() != 0 {
			t.Errorf("added %d objects, want 0", change.Len())
		}
		if err := change.Undo(); err != nil {
			return err
		}
		if !route.InSync(onlyPassthrough) {
			t.Error("Undo removed the address, want it to remain")
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

// TestUndoRemovesObjectsOfTheFastPath checks that Undo also removes the objects that the fast path
// has added before Ensure took the slow path.
func TestUndoRemovesObjectsOfTheFastPath(t *testing.T) {
	n := netnstest.New(t)
	ip(t, n, sluiceRule4)
	if err := n.Do(func() error {
		change, err := route.Ensure(nil, onlyPassthrough)
		if err != nil {
			return err
		}
		if err := change.Undo(); err != nil {
			return err
		}
		found, err := route.Read(nil)
		if len(found.LoopbackAddrs) > 0 {
			t.Error("Undo kept ::6, want it to be removed")
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
}
