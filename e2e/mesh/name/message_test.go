package name_test

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/miekg/dns"

	"github.com/sluice-mesh/sluice/e2e/mesh/name"
)

func TestResponseNamesServerAndProxy(t *testing.T) {
	peer := netip.MustParseAddrPort("10.0.0.1:5353")
	for recordType, address := range map[uint16]netip.Addr{
		dns.TypeA: name.Answered4, dns.TypeAAAA: name.Answered6,
	} {
		query := new(dns.Msg).SetQuestion("a.example.", recordType)
		response := name.Answer(query, "dns", peer)
		want := name.Resolution{
			Server: "dns", Peer: peer, Addresses: []netip.Addr{address}, Code: "NOERROR",
		}
		check(t, response, want)
		name.AddText(response, name.Proxy, "a")
		want.Proxy = "a"
		check(t, response, want)
		name.AddText(response, name.Proxy, "b")
		if r, err := name.Read(transmitted(t, response)); err == nil {
			t.Errorf("records of two proxies: %+v, want an error", r)
		}
	}
}

// transmitted returns the message as its receiver decodes it.
func transmitted(t *testing.T, m *dns.Msg) *dns.Msg {
	t.Helper()
	packed, err := m.Pack()
	if err != nil {
		t.Fatal(err)
	}
	received := new(dns.Msg)
	if err := received.Unpack(packed); err != nil {
		t.Fatal(err)
	}
	return received
}

// check fails the test unless the response has the content want.
func check(t *testing.T, response *dns.Msg, want name.Resolution) {
	t.Helper()
	got, err := name.Read(transmitted(t, response))
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
	query, err := new(dns.Msg).SetQuestion("a.example.", dns.TypeA).Pack()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(query)
	f.Fuzz(func(_ *testing.T, message []byte) {
		var m dns.Msg
		if m.Unpack(message) == nil {
			_, _ = name.Read(&m)
			_ = name.Answer(&m, "dns", netip.AddrPort{})
		}
	})
}
