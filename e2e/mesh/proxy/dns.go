package proxy

import (
	"context"
	"log"
	"net"
	"net/netip"
	"strconv"

	"github.com/miekg/dns"

	"github.com/sluice-mesh/sluice/e2e/mesh/name"
)

// startDNS starts the DNS servers. They listen on the loopback addresses to which queries are
// redirected, so that responses have these source addresses.
func (o Options) startDNS(ctx context.Context, background func(func() error)) error {
	for _, host := range []string{"127.0.0.1", "::1"} {
		l, err := name.Listen(ctx, net.ListenConfig{},
			net.JoinHostPort(host, strconv.Itoa(dnsPort)))
		if host == "::1" && IsNoIPv6(err) {
			continue
		}
		if err != nil {
			return err
		}
		background(func() error { return l.Serve(ctx, o.forward) })
	}
	return nil
}

// forward sends a query to the resolver, and adds the name of the pod to the response. It logs and
// returns errors.
func (o Options) forward(
	network string, query *dns.Msg, peer netip.AddrPort,
) (response *dns.Msg, err error) {
	defer func() {
		if err != nil {
			log.Printf("query of %s: %v", peer, err)
		}
	}()
	conn, err := net.DialTimeout(network, o.Resolver, name.Timeout)
	if err != nil {
		return nil, err
	}
	defer func() { _ = conn.Close() }()
	return name.Forward(conn, query, o.Name)
}
