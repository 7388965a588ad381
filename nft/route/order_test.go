package route_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
	"github.com/sluice-mesh/sluice/nft/route"
)

// TestRouteExistsOnlyWithItsRule checks the order of the steps. A process that is killed between
// two steps may leave a rule without its route, but never a route without its rule: Prune finds the
// route by the rule.
func TestRouteExistsOnlyWithItsRule(t *testing.T) {
	n := netnstest.New(t)
	var events *nl.NetlinkSocket
	err := n.Do(func() (err error) {
		events, err = nl.Subscribe(unix.NETLINK_ROUTE, unix.RTNLGRP_IPV4_RULE,
			unix.RTNLGRP_IPV4_ROUTE)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	defer events.Close()

	change := mustEnsure(t, n, onlyIPv4)
	if err := change.Undo(); err != nil {
		t.Fatal(err)
	}
	mustEnsure(t, n, onlyIPv4)
	if _, err := route.Prune(n, nothing); err != nil {
		t.Fatal(err)
	}
	names := map[uint16]string{
		unix.RTM_NEWRULE: "rule added", unix.RTM_NEWROUTE: "route added",
		unix.RTM_DELROUTE: "route removed", unix.RTM_DELRULE: "rule removed",
	}
	once := []string{"rule added", "route added", "route removed", "rule removed"}
	want := join(once, once)
	var got []string
	for len(got) < len(want) {
		messages, _, err := events.Receive()
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range messages {
			got = append(got, names[m.Header.Type])
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
}
