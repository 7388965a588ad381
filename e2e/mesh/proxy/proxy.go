// Package proxy is a minimal replacement for Envoy and pilot-agent. It listens on their ports, and
// connects to the application from Envoy's source addresses. It forwards each connection to its
// original destination, and adds a header to the first HTTP request of the connection, so that the
// receiver can check the path (see package path).
//
//	15001  outbound connections
//	15006  inbound connections; they are forwarded to the application from 127.0.0.6 or ::6, or from
//	       the address of the caller if Options.Transparent is true
//	15053  DNS queries over UDP and TCP, on loopback
//	15008, 15020, 15021, 15090  tunnel, status, readiness and metrics; the proxy itself responds
package proxy

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"

	"github.com/sluice-mesh/sluice/e2e/mesh/path"
	"github.com/sluice-mesh/sluice/e2e/mesh/server"
)

// Ports that forward connections, and ports on which the proxy itself responds.
const (
	outboundPort = 15001
	inboundPort  = 15006
	dnsPort      = 15053
)

var ownPorts = []uint16{15008, 15020, 15021, 15090}

// mark is the mark of connections to the application from the address of the client. Because of the
// mark, the routing of the redirection delivers their replies to the proxy.
const mark = 1337

// Options configures a proxy.
type Options struct {
	// Name is the name of the pod.
	Name string
	// Transparent makes the inbound listener transparent, for TPROXY. It requires CAP_NET_ADMIN.
	Transparent bool
	// Resolver is the address and port of the DNS server to forward to.
	Resolver string
}

// Run serves until ctx is done, and then returns nil. If a server fails, Run returns the error.
func Run(ctx context.Context, o Options) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	// serve runs a server in the background. When one server ends, Run returns.
	serve := func(run func() error) {
		go func() { cancel(run()) }()
	}
	if err := o.serveTCP(ctx, serve); err != nil {
		return err
	}
	o.serveDNS(ctx, serve)
	for _, port := range ownPorts {
		listeners, err := listen(ctx, port, false)
		if err != nil {
			return err
		}
		for _, l := range listeners {
			serve(func() error {
				return http.Serve(l, server.Handler(o.Name, fmt.Sprintf("proxy %d", port)))
			})
		}
	}
	<-ctx.Done()
	if err := context.Cause(ctx); !errors.Is(err, context.Canceled) {
		return fmt.Errorf("serve: %w", err)
	}
	return nil
}

// serveTCP starts the servers that forward connections.
func (o Options) serveTCP(ctx context.Context, serve func(func() error)) error {
	for port, c := range map[uint16]tcpProxy{
		outboundPort: {podName: o.Name, direction: path.Outbound},
		inboundPort:  {podName: o.Name, direction: path.Inbound, transparent: o.Transparent},
	} {
		listeners, err := listen(ctx, port, c.transparent)
		if err != nil {
			return err
		}
		for _, l := range listeners {
			serve(func() error { return c.serve(ctx, l) })
		}
	}
	return nil
}

// listen listens on a port of all addresses. It uses one socket for each family, because
// SO_ORIGINAL_DST depends on the socket's family.
func listen(ctx context.Context, port uint16, transparent bool) ([]net.Listener, error) {
	var listeners []net.Listener
	for network, host := range map[string]string{"tcp4": "0.0.0.0", "tcp6": "::"} {
		var config net.ListenConfig
		if transparent {
			config.Control = Transparent
		}
		l, err := config.Listen(ctx, network, net.JoinHostPort(host, strconv.Itoa(int(port))))
		switch {
		case err == nil:
			listeners = append(listeners, l)
		case network == "tcp4" || !IsNoIPv6(err):
			return nil, err
		}
	}
	return listeners, nil
}
