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
	added := func(want rules.Routing, inPlace bool) (list []netlink.Addr, change route.Change) {
		n := netnstest.New(t)
		arg := n
		if inPlace {
			arg = nil
		}
		if err := n.Do(func() (err error) {
			if change, err = route.Ensure(arg, want); err != nil {
				return err
			}
			lo, err := netlink.LinkByName("lo")
			if err != nil {
				return err
			}
			list, err = testbed.RetryDump(func() ([]netlink.Addr, error) {
				return netlink.AddrList(lo, netlink.FAMILY_V6)
			})
			if err != nil {
				return err
			}
			if change.Stale() {
				t.Error("an empty namespace has stale objects")
			}
			if !route.InSync(want) {
				t.Errorf("fast path %t: the routing is incomplete", inPlace)
			}
			return change.Undo()
		}); err != nil {
			t.Fatal(err)
		}
		return list, change
	}
	for _, want := range []rules.Routing{nothing, onlyPassthrough} {
		slowAddrs, slow := added(want, false)
		fastAddrs, fast := added(want, true)
		flags := cmp.Transformer("flags", func(a netlink.Addr) string {
			return fmt.Sprintf("%s flags 0x%x scope %d", a, a.Flags, a.Scope)
		})
		if diff := cmp.Diff(slowAddrs, fastAddrs, flags); diff != "" {
			t.Error(diff)
		}
		if fast.Len() != slow.Len() {
			t.Errorf("%d added, want %d", fast.Len(), slow.Len())
		}
	}
}

// TestFastPathRejectsARouteWithTypeOfService covers a route that does not apply to all packets.
func TestFastPathRejectsARouteWithTypeOfService(t *testing.T) {
	n := netnstest.New(t)
	ip(t, n, sluiceRule4, "-4 route add local default dev lo tos 0x10 table 133")
	if found, err := route.Read(n); err != nil || len(found.Policies) > 0 ||
		len(found.Unrouted) != 1 || len(found.Others) != 1 {
		t.Errorf("read %+v, %v", found, err)
	}
	if err := n.Do(func() error {
		change, err := route.Ensure(nil, onlyIPv4)
		if change.Len() != 1 {
			t.Errorf("%d added, want the route", change.Len())
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
}

// TestFastPathIsNotTakenWithStaleRules checks that unwanted objects of Sluice make Ensure take the
// slow path, which reports them.
func TestFastPathIsNotTakenWithStaleRules(t *testing.T) {
	for name, before := range map[string][]string{
		"a rule": {sluiceRule4}, "an IPv6 rule": {sluiceRule6},
	} {
		n := netnstest.New(t)
		ip(t, n, before...)
		if err := n.Do(func() error {
			change, err := route.Ensure(nil, onlyPassthrough)
			if !change.Stale() || change.Len() != 1 {
				t.Errorf("%s: stale %t, %d added", name, change.Stale(), change.Len())
			}
			return err
		}); err != nil {
			t.Fatal(err)
		}
	}
}

// TestUndoKeepsAnExistingAddress checks that Undo keeps an address that existed before: it may
// belong to Istio.
func TestUndoKeepsAnExistingAddress(t *testing.T) {
	n := netnstest.New(t)
	ip(t, n, "-6 address add ::6/128 dev lo nodad")
	if err := n.Do(func() error {
		change, err := route.Ensure(nil, onlyPassthrough)
		if err != nil {
			return err
		}
		if change.Len() != 0 {
			t.Errorf("%d added", change.Len())
		}
		if err := change.Undo(); err != nil {
			return err
		}
		if !route.InSync(onlyPassthrough) {
			t.Error("the address was removed")
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
			t.Error("::6 was not removed")
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
}
