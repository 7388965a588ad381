package netnstest

import (
	"net/netip"
	"testing"

	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/nft/testbed"
)

// Pair is a pod and the rest of the world: two namespaces, the eth0 of each
// joined to the other's, ready for packets of both families. It is the network
// of a [testbed.Bed], for tests that bring their own servers.
//
// The neighbour is the pod's default gateway and has every address outside
// 10.244.1.0/24 and fd00:10:244:1::/64 for its own: whatever the pod connects
// to reaches a listener of the neighbour on 0.0.0.0 or [::], and answers come
// from the address that was asked. It may bind any address too, which a UDP
// server must do to answer from an address other than its own.
type Pair struct {
	Pod, Neighbour             *netns.NS
	PodIP4, PodIP6             netip.Addr // 10.244.1.5, fd00:10:244:1::5
	NeighbourIP4, NeighbourIP6 netip.Addr // 10.244.1.1, fd00:10:244:1::1
}

// NewPair returns a new [Pair].
func NewPair(t testing.TB) Pair {
	t.Helper()
	RequireRoot(t)
	b, err := testbed.New(testbed.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	return Pair{
		Pod: b.Pod, Neighbour: b.Neighbour,
		PodIP4: testbed.PodIP4, PodIP6: testbed.PodIP6,
		NeighbourIP4: testbed.NeighbourIP4, NeighbourIP6: testbed.NeighbourIP6,
	}
}
