package observe

import (
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"
)

// A peer is a connection from the address from. It records whether it was closed.
type peer struct {
	net.Conn
	from   string
	closed bool
}

func (p *peer) RemoteAddr() net.Addr {
	return net.TCPAddrFromAddrPort(netip.AddrPortFrom(netip.MustParseAddr(p.from), 40000))
}

func (p *peer) Close() error {
	p.closed = true
	return nil
}

// A testLimiter is a limiter whose time the test controls, with its reports.
type testLimiter struct {
	*limiter
	at      time.Time
	reports []Refusals
}

func newTestLimiter() *testLimiter {
	tl := &testLimiter{at: time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)}
	tl.limiter = &limiter{
		isNode: func(a netip.Addr) bool { return a == netip.MustParseAddr("10.0.0.1") },
		report: func(r Refusals) { tl.reports = append(tl.reports, r) },
		now:    func() time.Time { return tl.at },
	}
	return tl
}

// connect opens connections from addresses, and returns the accepted ones.
func (tl *testLimiter) connect(from ...string) (accepted []*peer) {
	for _, address := range from {
		p := &peer{from: address}
		if tl.admit(p) != nil {
			accepted = append(accepted, p)
		}
	}
	return accepted
}

func times(n int, from string) []string { return slices.Repeat([]string{from}, n) }

func stillOpen(peers []*peer) (n int) {
	for _, p := range peers {
		if !p.closed {
			n++
		}
	}
	return n
}

// TestOldestConnectionOfAnAddressIsReplaced checks that one address has at most eight open
// connections, and that the oldest is closed for a new one.
func TestOldestConnectionOfAnAddressIsReplaced(t *testing.T) {
	tl := newTestLimiter()
	accepted := tl.connect(times(20, "10.1.0.7")...)
	if len(accepted) != 20 || stillOpen(accepted) != 8 || !accepted[11].closed || accepted[12].closed {
		t.Errorf("%d connections were accepted, want 20; %d are open, want the last 8", len(accepted),
			stillOpen(accepted))
	}
}

// TestAddressWithTheMostConnectionsLosesOne checks that, at the limit of all addresses, the address
// with the most connections loses one to an address without connections.
func TestAddressWithTheMostConnectionsLosesOne(t *testing.T) {
	tl := newTestLimiter()
	var accepted []*peer
	for _, from := range []string{
		"10.1.0.1", "10.1.0.2", "10.1.0.3", "10.1.0.4", "10.1.0.5", "10.1.0.6", "10.1.0.7",
		"10.1.0.8",
	} {
		accepted = append(accepted, tl.connect(times(8, from)...)...)
	}
	if stillOpen(accepted) != 64 {
		t.Fatalf("%d connections are open, want 64", stillOpen(accepted))
	}
	if one := tl.connect("10.1.0.9"); len(one) != 1 || one[0].closed || stillOpen(accepted) != 63 {
		t.Errorf("the ninth address: %d accepted, want 1; %d others are open, want 63", len(one),
			stillOpen(accepted))
	}
	ofNode := tl.connect("10.0.0.1")
	for i := range 300 {
		tl.at = tl.at.Add(time.Second)
		tl.connect(times(20, netip.AddrFrom4([4]byte{10, 2, 0, byte(i)}).String())...)
	}
	if ofNode[0].closed {
		t.Error("the connection of the node was closed for a connection of a pod")
	}
	if n := len(tl.open); n != 65 {
		t.Errorf("%d connections, want 64 and the node's", n)
	}
}

// TestNewConnectionsAreLimitedPerSecond checks that an address may open 20 new connections per
// second, an address of the node 80, and all addresses that are not the node's together 100. The
// first connection of each address in a second is always accepted.
func TestNewConnectionsAreLimitedPerSecond(t *testing.T) {
	tl := newTestLimiter()
	if n := len(tl.connect(times(50, "10.1.0.7")...)); n != 20 {
		t.Errorf("%d connections of one address, want 20", n)
	}
	for i := range 10 {
		tl.connect(times(20, netip.AddrFrom4([4]byte{10, 2, 0, byte(i)}).String())...)
	}
	if n := len(tl.connect("10.1.0.8", "10.1.0.8")); n != 1 {
		t.Errorf("%d connections of a new address after the limit is reached, want 1", n)
	}
	if n := len(tl.connect(times(100, "10.0.0.1")...)); n != 80 {
		t.Errorf("%d connections of the node, want 80", n)
	}
	tl.at = tl.at.Add(time.Second)
	if n := len(tl.connect(times(50, "10.1.0.7")...)); n != 20 {
		t.Errorf("%d connections of one address in the next second, want 20", n)
	}
}

// TestRefusalsAreReportedOnceAMinute checks that refusals are reported once a minute, with their
// number.
func TestRefusalsAreReportedOnceAMinute(t *testing.T) {
	tl := newTestLimiter()
	for range 90 {
		tl.connect(times(30, "10.1.0.7")...)
		tl.at = tl.at.Add(time.Second)
	}
	address := netip.MustParseAddr("10.1.0.7")
	// The first refusal is reported immediately. Each second has ten refusals.
	if want := []Refusals{{1, address}, {10 * 60, address}}; !slices.Equal(tl.reports, want) {
		t.Errorf("reports %v, want %v", tl.reports, want)
	}
}

func TestTrackedAddressesAreBounded(t *testing.T) {
	tl := newTestLimiter()
	for i := range 3 * maxAddresses {
		tl.connect(netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}).String())
	}
	if n := len(tl.rates); n > maxAddresses+1 {
		t.Errorf("%d addresses, want at most %d", n, maxAddresses+1)
	}
}

// TestConnectionThatIsClosedTwiceIsCountedOnce checks that a connection that is closed twice, as by
// net/http, is counted once.
func TestConnectionThatIsClosedTwiceIsCountedOnce(t *testing.T) {
	tl := newTestLimiter()
	conn := tl.admit(&peer{from: "10.1.0.7"})
	_, _ = conn.Close(), conn.Close()
	if len(tl.open) != 0 {
		t.Errorf("%d connections are counted as open, want 0", len(tl.open))
	}
}

func TestFromNode(t *testing.T) {
	fromNode := FromNode("192.0.2.7, 2001:db8::7,,no address")
	for address, want := range map[string]bool{
		"192.0.2.7": true, "2001:db8::7": true, "127.0.0.1": true, "::1": true, "192.0.2.8": false,
		"2001:db8::8": false,
	} {
		if got := fromNode(netip.MustParseAddr(address)); got != want {
			t.Errorf("FromNode(%s) is %v, want %v", address, got, want)
		}
	}
}
