package observe

import (
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"
)

// Limits for the clients of a port. Each connection costs at most two descriptors and about 30 KiB.
const (
	// maxOpen and maxOpenOfOne limit the open connections of all addresses other than the node's,
	// and of one address. The kubelet opens two at a time, and each Prometheus one.
	maxOpen      = 64
	maxOpenOfOne = 8
	// maxRate and maxRateOfOne limit the new connections per second in the same way.
	maxRate      = 100
	maxRateOfOne = 20
	// maxAddresses is the maximum number of addresses that are counted separately in a second.
	maxAddresses = 4096
	// ofNode is the factor of the limits for an address of the node, because probes use it.
	ofNode = 4
	// refusalPause is the minimum time between two reports of refusals.
	refusalPause = time.Minute
)

// Refusals are the refused connections to a port since the last report.
type Refusals struct {
	Count int
	// Address is the last refused address.
	Address netip.Addr
}

// A limiter is a listener that resets connections beyond the limits. It accepts a connection before
// it resets it, so that the kernel's accept queue, which may contain a probe, does not fill up. At
// the limit of open connections, it resets the oldest connection of the address with the most
// connections, so that other addresses are always served. Addresses of the node have separate
// limits.
type limiter struct {
	net.Listener
	isNode func(netip.Addr) bool
	// refused is called for each refused connection, report at most once in refusalPause.
	refused func()
	report  func(Refusals)
	now     func() time.Time

	mu          sync.Mutex
	open        []*limited // the oldest first
	capacity    map[netip.Addr]int
	others      int       // number of open connections that are not the node's
	windowStart time.Time // when the counts of new connections began
	rate        int
	rates       map[netip.Addr]int
	pending     Refusals
	reported    time.Time
}

// A limited connection is a connection that the limiter accepted.
type limited struct {
	net.Conn
	limiter *limiter
	address netip.Addr
	isNode  bool
	once    sync.Once
}

// Close closes the connection, which then does not count any longer.
func (c *limited) Close() error {
	c.once.Do(func() { c.limiter.remove(c) })
	return c.Conn.Close()
}

// Accept returns the next connection within the limits.
func (l *limiter) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if c := l.admit(conn); c != nil {
			return c, nil
		}
		reset(conn)
		l.refused()
	}
}

// admit returns the connection, or nil if it is refused. At the limit of open connections, it
// closes another connection.
func (l *limiter) admit(conn net.Conn) net.Conn {
	address := addressOf(conn)
	c := &limited{Conn: conn, limiter: l, address: address, isNode: l.isNode(address)}
	l.mu.Lock()
	if !l.withinRate(address, c.isNode) {
		l.pending.Count++
		l.pending.Address = address
		report, due := l.pending, l.now().Sub(l.reported) >= refusalPause
		if due {
			l.pending, l.reported = Refusals{}, l.now()
		}
		l.mu.Unlock()
		if due {
			l.report(report)
		}
		return nil
	}
	victim := l.connectionToClose(c)
	l.add(c)
	l.mu.Unlock()
	if victim != nil {
		reset(victim)
	}
	return c
}

// withinRate counts a new connection of an address. The first connection of an address in each
// second is always accepted.
func (l *limiter) withinRate(address netip.Addr, isNode bool) bool {
	now := l.now()
	if l.rates == nil || now.Sub(l.windowStart) >= time.Second {
		l.windowStart, l.rate, l.rates = now, 0, map[netip.Addr]int{}
	}
	n, known := l.rates[address]
	switch {
	case isNode:
		if n >= ofNode*maxRateOfOne {
			return false
		}
	case !known && len(l.rates) >= maxAddresses, n >= maxRateOfOne, known && l.rate >= maxRate:
		return false
	default:
		l.rate++
	}
	l.rates[address] = n + 1
	return true
}

// connectionToClose returns the connection to close in favor of a new one, or nil if no limit is
// reached.
func (l *limiter) connectionToClose(to *limited) net.Conn {
	allowed := maxOpenOfOne
	if to.isNode {
		allowed *= ofNode
	}
	if l.capacity[to.address] >= allowed {
		return l.oldest(func(c *limited) bool { return c.address == to.address })
	}
	if to.isNode || l.others < maxOpen {
		return nil
	}
	most := 0
	for _, c := range l.open {
		if !c.isNode {
			most = max(most, l.capacity[c.address])
		}
	}
	return l.oldest(func(c *limited) bool { return !c.isNode && l.capacity[c.address] == most })
}

// add adds a connection.
func (l *limiter) add(c *limited) {
	if l.capacity == nil {
		l.capacity = map[netip.Addr]int{}
	}
	l.open = append(l.open, c)
	l.capacity[c.address]++
	if !c.isNode {
		l.others++
	}
}

func (l *limiter) oldest(of func(*limited) bool) net.Conn {
	if at := slices.IndexFunc(l.open, of); at >= 0 {
		return l.open[at]
	}
	return nil
}

// remove removes a connection.
func (l *limiter) remove(c *limited) {
	l.mu.Lock()
	defer l.mu.Unlock()
	at := slices.Index(l.open, c)
	if at < 0 {
		return
	}
	l.open = slices.Delete(l.open, at, at+1)
	if l.capacity[c.address]--; l.capacity[c.address] == 0 {
		delete(l.capacity, c.address)
	}
	if !c.isNode {
		l.others--
	}
}

// reset closes a connection without leaving state in the kernel.
func reset(conn net.Conn) {
	inner := conn
	if c, ok := conn.(*limited); ok {
		inner = c.Conn
	}
	if tcp, ok := inner.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = conn.Close()
}

func addressOf(conn net.Conn) netip.Addr {
	at, err := netip.ParseAddrPort(conn.RemoteAddr().String())
	if err != nil {
		return netip.Addr{}
	}
	return at.Addr().Unmap().WithZone("")
}
