package netnstest

import (
	"net/netip"
	"testing"

	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/nft/testbed"
)

// Pair is the network of a [testbed.Network] without its servers: the namespaces of a
// pod and of a neighbor, connected by their interfaces eth0, with IPv4 and IPv6.
//
// The neighbor is the pod's default gateway and accepts packets to its own addresses
// and to every address outside 10.244.1.0/24, fd00:10:244:1::/64, fe80::/64, and the
// networks of [testbed.MachineIP4] and [testbed.MachineIP6]. Every connection of the
// pod to such an address reaches a listener of the neighbor on 0.0.0.0 or [::], and
// replies have the address as their source. The neighbor may also bind any address,
// which a UDP server needs to reply from an address that no interface has.
type Pair struct {
	Pod, Neighbor            *netns.NS
	PodIP4, PodIP6           netip.Addr // 10.244.1.5, fd00:10:244:1::5
	NeighborIP4, NeighborIP6 netip.Addr // 10.244.1.1, fd00:10:244:1::1
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
		Pod: b.Pod, Neighbor: b.Neighbor,
		PodIP4: testbed.PodIP4, PodIP6: testbed.PodIP6,
		NeighborIP4: testbed.NeighborIP4, NeighborIP6: testbed.NeighborIP6,
	}
}
