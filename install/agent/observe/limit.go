package observe

import (
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"
)

// Limits for the clients of a port. Each connection costs at most two descriptors and about 30 KiB,
// and serves one request.
const (
	// maxOpen limits the open connections of all addresses other than the node's, and
	// maxOpenPerAddress the open connections of one address. The kubelet opens two connections at a
	// time, and a Prometheus server opens one for each scrape.
	maxOpen           = 64
	maxOpenPerAddress = 8
	// maxRate and maxRatePerAddress limit the new connections per second in the same way.
	maxRate           = 100
	maxRatePerAddress = 20
	// maxAddresses is the maximum number of addresses whose connections are counted in a second.
	// Connections of further addresses are refused, except connections of the node.
	maxAddresses = 4096
	// nodeFactor multiplies the limits per address for addresses of the node, which probes use.
	nodeFactor = 4
	// reportInterval is the minimum time between two reports of refusals.
	reportInterval = time.Minute
)

// Refusals are the refused connections to a port since the last report.
type Refusals struct {
	Count int
	// Address is the last refused address.
	Address netip.Addr
}

// A limiter is a listener that resets connections beyond the limits. It accepts each connection
// first, so that the kernel's accept queue, which may contain a probe, does not fill up. If the
// address of a new connection has reached its limit of open connections, the new connection
// replaces the oldest one of this address. If all addresses other than the node's together have
// reached their limit, it replaces the oldest one of the address with the most connections, so that
// other addresses are always served. Addresses of the node have separate limits.
type limiter struct {
	net.Listener
	isNode  func(netip.Addr) bool
	refused func()         // called for each refused connection
	report  func(Refusals) // called at most once per reportInterval
	now     func() time.Time

	mu   sync.Mutex
	open []*limited // the oldest first
	// foreignRate and rates are the numbers of new connections since windowStart: of all addresses
	// other than the node's, and of each address.
	windowStart time.Time
	foreignRate int
	rates       map[netip.Addr]int
	pending     Refusals  // not yet reported
	reportedAt  time.Time // time of the last report
}

// A limited connection is a connection that the limiter accepted.
type limited struct {
	net.Conn
	limiter *limiter
	address netip.Addr
	isNode  bool
	once    sync.Once
}

// Close closes the connection, and removes it from the counts.
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

// admit returns the connection, or nil if it is refused. If the limit of open connections is
// reached, it closes another connection.
func (l *limiter) admit(conn net.Conn) net.Conn {
	address := addressOf(conn)
	c := &limited{Conn: conn, limiter: l, address: address, isNode: l.isNode(address)}
	l.mu.Lock()
	if !l.withinRate(address, c.isNode) {
		l.pending.Count++
		l.pending.Address = address
		report, due := l.pending, l.now().Sub(l.reportedAt) >= reportInterval
		if due {
			l.pending, l.reportedAt = Refusals{}, l.now()
		}
		l.mu.Unlock()
		if due {
			l.report(report)
		}
		return nil
	}
	replaced := l.connectionToClose(c)
	l.open = append(l.open, c)
	l.mu.Unlock()
	if replaced != nil {
		reset(replaced)
	}
	return c
}

// withinRate reports whether a new connection of an address is within the rate limits, and counts
// the connection if so. In each second, the first connection of an address is within the limits
// until maxAddresses addresses have connected. This maximum does not apply to the node's addresses.
func (l *limiter) withinRate(address netip.Addr, isNode bool) bool {
	now := l.now()
	if l.rates == nil || now.Sub(l.windowStart) >= time.Second {
		l.windowStart, l.foreignRate, l.rates = now, 0, map[netip.Addr]int{}
	}
	n, known := l.rates[address]
	switch {
	case isNode:
		if n >= nodeFactor*maxRatePerAddress {
			return false
		}
	case !known && len(l.rates) >= maxAddresses, n >= maxRatePerAddress,
		known && l.foreignRate >= maxRate:
		return false
	default:
		l.foreignRate++
	}
	l.rates[address] = n + 1
	return true
}

// connectionToClose returns the open connection that a new one replaces, or nil if no limit is
// reached.
func (l *limiter) connectionToClose(added *limited) net.Conn {
	allowed := maxOpenPerAddress
	if added.isNode {
		allowed *= nodeFactor
	}
	counts := map[netip.Addr]int{} // open connections of each address
	foreign, most := 0, 0          // not the node's: of all addresses, and the maximum of one
	for _, c := range l.open {
		counts[c.address]++
		if !c.isNode {
			foreign++
			most = max(most, counts[c.address])
		}
	}
	switch {
	case counts[added.address] >= allowed:
		return l.oldest(func(c *limited) bool { return c.address == added.address })
	case added.isNode, foreign < maxOpen:
		return nil
	}
	return l.oldest(func(c *limited) bool { return !c.isNode && counts[c.address] == most })
}

// oldest returns the oldest open connection for which matches reports true, or nil.
func (l *limiter) oldest(matches func(*limited) bool) net.Conn {
	if at := slices.IndexFunc(l.open, matches); at >= 0 {
		return l.open[at]
	}
	return nil
}

func (l *limiter) remove(c *limited) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if at := slices.Index(l.open, c); at >= 0 {
		l.open = slices.Delete(l.open, at, at+1)
	}
}

// reset closes a connection with an RST, so that the kernel keeps no state for it.
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
