// Package proxy is a transparent proxy that stands for Envoy and the agent beside it: the same
// ports, the same addresses towards the application, and nothing of what they decide. It carries a
// connection to the destination that its caller asked for, and writes into a request over HTTP that
// it did (see package path), so that what it did not carry can be told from what it did.
//
//	15001  outbound connections
//	15006  inbound connections, to the application as 127.0.0.6 or ::6, or with the caller's address if Transparent
//	15053  DNS queries, by UDP and TCP, on loopback
//	15008, 15020, 15021, 15090  the tunnel, status, readiness and metrics: answer any request for themselves
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

// The ports that carry, and those that answer themselves.
const (
	outboundPort = 15001
	inboundPort  = 15006
	dnsPort      = 15053
)

var ownPorts = []uint16{15008, 15020, 15021, 15090}

// mark is that of connections to the application which have the caller's address; the redirect
// routes their answers to the proxy.
const mark = 1337

// Options say who the proxy is.
type Options struct {
	// Name is its pod's.
	Name string
	// Transparent makes the inbound side that of TPROXY. It needs NET_ADMIN.
	Transparent bool
	// Resolver is the DNS server to forward to, with port.
	Resolver string
}

// Run serves until the context ends, which is no error.
func Run(ctx context.Context, o Options) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	// A server that fails ends the others.
	serve := func(run func() error) {
		go func() { cancel(run()) }()
	}
	if err := o.carry(ctx, serve); err != nil {
		return err
	}
	o.resolve(ctx, serve)
	for _, port := range ownPorts {
		listeners, err := listen(ctx, port, false)
		if err != nil {
			return err
		}
		for _, l := range listeners {
			serve(func() error { return http.Serve(l, server.Handler(o.Name, fmt.Sprintf("proxy %d", port))) })
		}
	}
	<-ctx.Done()
	if err := context.Cause(ctx); !errors.Is(err, context.Canceled) {
		return fmt.Errorf("serve: %w", err)
	}
	return nil
}

// carry starts what carries connections.
func (o Options) carry(ctx context.Context, serve func(func() error)) error {
	for port, c := range map[uint16]carrier{
		outboundPort: {proxy: o.Name, direction: path.Outbound},
		inboundPort:  {proxy: o.Name, direction: path.Inbound, transparent: o.Transparent},
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

// listen listens on a port of all addresses, by a socket for each family that there is: only such a
// one tells the original destination of either.
func listen(ctx context.Context, port uint16, transparent bool) ([]net.Listener, error) {
	var listeners []net.Listener
	for network, any := range map[string]string{"tcp4": "0.0.0.0", "tcp6": "::"} {
		var config net.ListenConfig
		if transparent {
			config.Control = makeTransparent
		}
		l, err := config.Listen(ctx, network, net.JoinHostPort(any, strconv.Itoa(int(port))))
		switch {
		case err == nil:
			listeners = append(listeners, l)
		case network == "tcp4" || !isNoIPv6(err):
			return nil, err
		}
	}
	return listeners, nil
}
