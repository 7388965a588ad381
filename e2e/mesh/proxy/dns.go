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

// serveDNS starts the servers that forward DNS queries. They listen on the loopback addresses to
// which queries are redirected, so that responses have these source addresses.
func (o Options) serveDNS(ctx context.Context, serve func(func() error)) {
	for _, host := range []string{"127.0.0.1", "::1"} {
		serve(func() error {
			err := name.Serve(ctx, net.JoinHostPort(host, strconv.Itoa(dnsPort)), o.forward)
			if host == "::1" && IsNoIPv6(err) {
				// Wait, because Run ends the proxy when a server returns.
				<-ctx.Done()
				return nil
			}
			return err
		})
	}
}

// forward sends a query to the pod's resolver, and adds the name of the proxy to the response. It
// logs and returns errors.
func (o Options) forward(network string, query *dns.Msg, peer netip.AddrPort) (*dns.Msg, error) {
	response, err := o.askResolver(network, query)
	if err != nil {
		log.Printf("query of %s: %v", peer, err)
	}
	return response, err
}

// askResolver sends a query to the pod's resolver, and returns the response with the name of
// the proxy.
func (o Options) askResolver(network string, query *dns.Msg) (*dns.Msg, error) {
	conn, err := net.DialTimeout(network, o.Resolver, name.Timeout)
	if err != nil {
		return nil, err
	}
	defer func() { _ = conn.Close() }()
	return name.Forward(conn, query, o.Name)
}
