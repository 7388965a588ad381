package name_test

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-mesh/sluice/e2e/mesh/name"
)

func TestResponseNamesServerAndProxy(t *testing.T) {
	peer := netip.MustParseAddrPort("10.0.0.1:5353")
	for _, c := range []struct {
		isIPv6 bool
		want   netip.Addr
	}{{false, name.Answered4}, {true, name.Answered6}} {
		query, err := name.Query("a.example.", c.isIPv6)
		if err != nil {
			t.Fatal(err)
		}
		answer, err := name.Answer(query, "dns", peer)
		if err != nil {
			t.Fatal(err)
		}
		want := name.Resolution{
			Server: "dns", Peer: peer, Addresses: []netip.Addr{c.want}, Code: "RCodeSuccess",
		}
		check(t, answer, want)
		if answer, err = name.Sign(answer, name.Proxy, "a"); err != nil {
			t.Fatal(err)
		}
		want.Proxy = "a"
		check(t, answer, want)
		if answer, err = name.Sign(answer, name.Proxy, "b"); err != nil {
			t.Fatal(err)
		}
		if r, err := name.Read(answer); err == nil {
			t.Errorf("records of two proxies: %+v, want an error", r)
		}
	}
}

// check fails the test unless the response has the content want.
func check(t *testing.T, answer []byte, want name.Resolution) {
	t.Helper()
	got, err := name.Read(answer)
	if err != nil {
		t.Fatal(err)
	}
	addresses := cmp.Comparer(func(a, b netip.Addr) bool { return a == b })
	ports := cmp.Comparer(func(a, b netip.AddrPort) bool { return a == b })
	if diff := cmp.Diff(want, got, addresses, ports); diff != "" {
		t.Errorf("content of the response (-want +got)\n%s", diff)
	}
}

func FuzzRead(f *testing.F) {
	query, err := name.Query("a.example.", false)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(query)
	f.Fuzz(func(_ *testing.T, message []byte) {
		_, _ = name.Read(message)
		_, _ = name.Answer(message, "dns", netip.AddrPort{})
	})
}
