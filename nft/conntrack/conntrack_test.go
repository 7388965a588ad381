package conntrack_test

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/nft/budgettest"
	"github.com/sluice-mesh/sluice/nft/conntrack"
	"github.com/sluice-mesh/sluice/nft/conntrack/conntracktest"
	"github.com/sluice-mesh/sluice/nft/istio/istiotest"
	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
	"github.com/sluice-mesh/sluice/rules"
)

// forEach calls visit for the entries of the namespace.
func forEach(t *testing.T, ns *netns.NS, visit func(conntrack.Entry)) {
	t.Helper()
	if err := ns.Do(func() error {
		for e, err := range conntrack.List() {
			if err != nil {
				return err
			}
			visit(e)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

// count returns the number of entries in the namespace.
func count(t *testing.T, ns *netns.NS) (n int) {
	t.Helper()
	forEach(t, ns, func(conntrack.Entry) { n++ })
	return n
}

// TestListReturnsTheAddressesAndTheZone covers a redirected datagram in a zone.
func TestListReturnsTheAddressesAndTheZone(t *testing.T) {
	for _, row := range []struct{ family, loopback, to string }{
		{"ip", "127.0.0.1", "127.0.0.9"}, {"ip6", "::1", "::1"},
	} {
		ns := netnstest.New(t)
		istiotest.Run(t, ns, fmt.Sprintf(`table %s t {
			chain zone { type filter hook output priority raw; udp dport 53 ct zone set 7; }
			chain nat { type nat hook output priority -100; udp dport 53 redirect to :5353; }
		}`, row.family), "nft", "-f", "-")
		loopback, to := netip.MustParseAddr(row.loopback), netip.MustParseAddr(row.to)
		var local netip.AddrPort
		if err := ns.Do(func() error {
			c, err := net.DialUDP("udp", &net.UDPAddr{IP: loopback.AsSlice()},
				&net.UDPAddr{IP: to.AsSlice(), Port: 53})
			if err != nil {
				return err
			}
			defer func() { _ = c.Close() }()
			local = c.LocalAddr().(*net.UDPAddr).AddrPort()
			_, err = c.Write([]byte("x"))
			return err
		}); err != nil {
			t.Fatal(err)
		}
		want := fmt.Sprint([]any{
			rules.UDP, uint16(7), local, netip.AddrPortFrom(to, 53), netip.AddrPortFrom(loopback, 5353),
			local,
		})
		var got []string
		forEach(t, ns, func(e conntrack.Entry) {
			got = append(got, fmt.Sprint([]any{
				e.Protocol, e.Zone, e.Original.Source, e.Original.Destination, e.Reply.Source,
				e.Reply.Destination,
			}))
		})
		if !slices.Equal(got, []string{want}) {
			t.Errorf("entries %q, want %q", got, want)
		}
	}
}

// TestListNeedsLittleMemory checks that the memory does not depend on the number of entries, which
// a process of the namespace determines.
func TestListNeedsLittleMemory(t *testing.T) {
	ns := netnstest.New(t)
	const entries = 10_000
	conntracktest.AddTCP(t, ns, netip.MustParseAddr("127.0.0.1"), entries)
	budgettest.Bound{Processor: time.Second, Allocated: 1 << 20}.Check(t, "List", func() {
		if n := count(t, ns); n != entries {
			t.Errorf("%d entries, want %d", n, entries)
		}
	})
}

// TestEntriesAreDeletedDuringTheIteration deletes every second entry, and deletes each of them
// twice.
func TestEntriesAreDeletedDuringTheIteration(t *testing.T) {
	ns := netnstest.New(t)
	const entries = 5_000
	conntracktest.AddTCP(t, ns, netip.MustParseAddr("127.0.0.1"), entries)
	n := 0
	var kept []netip.AddrPort
	forEach(t, ns, func(e conntrack.Entry) {
		if n++; n%2 == 0 {
			kept = append(kept, e.Original.Source)
			return
		}
		for range 2 {
			if err := e.Delete(); err != nil {
				t.Fatal(err)
			}
		}
	})
	if n != entries {
		t.Errorf("%d entries, want %d", n, entries)
	}
	var left []netip.AddrPort
	forEach(t, ns, func(e conntrack.Entry) { left = append(left, e.Original.Source) })
	slices.SortFunc(kept, netip.AddrPort.Compare)
	slices.SortFunc(left, netip.AddrPort.Compare)
	if !slices.Equal(left, kept) {
		t.Errorf("%d entries remain, want the %d entries that were not deleted", len(left), len(kept))
	}
}

// TestListEndsWithTheLoop checks that the next list does not depend on an unfinished one.
func TestListEndsWithTheLoop(t *testing.T) {
	ns := netnstest.New(t)
	const entries = 1_000
	conntracktest.AddTCP(t, ns, netip.MustParseAddr("127.0.0.1"), entries)
	if err := ns.Do(func() error {
		for _, err := range conntrack.List() {
			return err
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if n := count(t, ns); n != entries {
		t.Errorf("%d entries, want %d", n, entries)
	}
}

// TestListWithoutPrivilegeFails checks that the error of the kernel is returned.
func TestListWithoutPrivilegeFails(t *testing.T) {
	netnstest.RequireRoot(t)
	err := netnstest.OnNewThread(func() error {
		if err := netnstest.DropCapabilities(unix.CAP_NET_ADMIN); err != nil {
			return err
		}
		for _, err := range conntrack.List() {
			if err == nil {
				t.Error("List returned an entry without CAP_NET_ADMIN, want an error")
			}
			return err
		}
		return nil
	})
	if err == nil {
		t.Error("List succeeded without CAP_NET_ADMIN, want an error")
	}
}
