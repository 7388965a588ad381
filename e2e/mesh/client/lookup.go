package client

import (
	"context"
	"net"
	"time"

	"github.com/sluice-mesh/sluice/e2e/mesh/name"
)

// A Lookup is a DNS query for an address.
type Lookup struct {
	// Name must end with a dot. IPv6 requests the IPv6 address instead of the IPv4 address.
	Name string
	IPv6 bool
	// Resolver is the address and port of the DNS server. Network is "udp" or "tcp".
	Resolver, Network string
}

// Do sends the query, at least once, and repeats it until a valid response arrives or ctx is done.
func (l Lookup) Do(ctx context.Context) name.Resolution {
	tick := time.NewTicker(retryDelay)
	defer tick.Stop()
	for {
		r, err := l.try()
		if err == nil {
			return r
		}
		select {
		case <-ctx.Done():
			return name.Resolution{Error: err.Error()}
		case <-tick.C:
		}
	}
}

// try sends the query once.
func (l Lookup) try() (name.Resolution, error) {
	query, err := name.Query(l.Name, l.IPv6)
	if err != nil {
		return name.Resolution{}, err
	}
	conn, err := net.DialTimeout(l.Network, l.Resolver, tryTimeout)
	if err != nil {
		return name.Resolution{}, err
	}
	defer func() { _ = conn.Close() }()
	if err := conn.SetDeadline(time.Now().Add(tryTimeout)); err != nil {
		return name.Resolution{}, err
	}
	answer, err := name.Exchange(conn, l.Network, query)
	if err != nil {
		return name.Resolution{}, err
	}
	return name.Read(answer)
}
