package route_test

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
	"github.com/sluice-mesh/sluice/nft/route"
)

func TestAddresses(t *testing.T) {
	for _, tc := range []struct {
		name   string
		before []string // commands of ip
		want   []string
	}{
		{"a new namespace has no addresses", nil, nil},
		{"the link-local address of an interface is excluded", addEth0, nil},
		{
			"IPv4 comes before IPv6, although IPv6 was added first",
			join(addEth0, []string{
				"address add fd00::5/64 dev eth0", "address add 10.1.1.5/24 dev eth0",
			}),
			[]string{"10.1.1.5", "fd00::5"},
		},
		{
			"only IPv6", join(addEth0, []string{"address add fd00::5/64 dev eth0"}),
			[]string{"fd00::5"},
		},
		{
			"several interfaces in the order of their indexes",
			join(addEth0, []string{
				"address add 10.2.2.2/24 dev net1", "address add 10.1.1.5/24 dev eth0",
			}),
			[]string{"10.1.1.5", "10.2.2.2"},
		},
		{
			"an interface that is down is included",
			join(addEth0[:1], []string{"address add 10.1.1.5/24 dev eth0"}),
			[]string{"10.1.1.5"},
		},
		{
			"the local address of a point-to-point link is included",
			join(addEth0, []string{"address add 10.1.1.5 peer 10.1.1.1/32 dev eth0"}),
			[]string{"10.1.1.5"},
		},
		{
			"loopback and link-local IPv4 addresses are excluded",
			join(addEth0, []string{
				"address add 127.0.0.9/8 dev eth0", "address add 169.254.1.1/16 dev eth0",
			}), nil,
		},
		{
			"a multicast address is excluded",
			join(addEth0, []string{"address add 239.1.1.1/32 dev eth0 autojoin"}), nil,
		},
		{
			"an address of lo is included",
			[]string{"address add 10.9.9.9/32 dev lo"},
			[]string{"10.9.9.9"},
		},
		{"::6 is excluded", []string{istioPassthrough}, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			n := netnstest.New(t)
			ip(t, n, tc.before...)
			var want []netip.Addr
			for _, a := range tc.want {
				want = append(want, netip.MustParseAddr(a))
			}
			got, err := route.Addresses(n)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, got, compareAddrs, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("addresses (-want +got):\n%s", diff)
			}
		})
	}
}
