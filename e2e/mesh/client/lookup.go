package client

import (
	"context"
	"net"

	"github.com/miekg/dns"

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
	return retry(ctx, func() (name.Resolution, bool) {
		r, err := l.try()
		if err != nil {
			r.Error = err.Error()
		}
		return r, err == nil
	})
}

// try sends the query once.
func (l Lookup) try() (name.Resolution, error) {
	recordType := dns.TypeA
	if l.IPv6 {
		recordType = dns.TypeAAAA
	}
	conn, err := net.DialTimeout(l.Network, l.Resolver, name.Timeout)
	if err != nil {
		return name.Resolution{}, err
	}
	defer func() { _ = conn.Close() }()
	response, err := name.Exchange(conn, new(dns.Msg).SetQuestion(l.Name, recordType))
	if err != nil {
		return name.Resolution{}, err
	}
	return name.Read(response)
}
