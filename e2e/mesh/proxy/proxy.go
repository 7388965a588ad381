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
	"sync"

	"github.com/sluice-mesh/sluice/e2e/mesh/path"
	"github.com/sluice-mesh/sluice/e2e/mesh/server"
)

// Ports whose connections or DNS queries the proxy forwards.
const (
	outboundPort = 15001
	inboundPort  = 15006
	dnsPort      = 15053
)

// localPorts are the ports on which the proxy itself responds.
var localPorts = []uint16{15008, 15020, 15021, 15090}

// mark is the socket mark of connections to the application from the client's address. The mark
// makes the policy routing of the redirection deliver the replies to the proxy.
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

// Run serves until ctx is canceled, and then returns nil. If a server cannot start or fails, Run
// returns the error. Before it returns, Run closes its listeners.
func Run(ctx context.Context, o Options) error {
	ctx, cancel := context.WithCancelCause(ctx)
	var background sync.WaitGroup
	defer background.Wait()
	defer cancel(nil)
	// When the first background function ends, Run returns.
	err := o.start(ctx, func(f func() error) { background.Go(func() { cancel(f()) }) })
	if err != nil {
		return err
	}
	<-ctx.Done()
	if err := context.Cause(ctx); !errors.Is(err, context.Canceled) {
		return fmt.Errorf("serve: %w", err)
	}
	return nil
}

// start opens the listeners, and runs their servers with background until ctx is done. It uses one
// socket for each family, because SO_ORIGINAL_DST depends on the socket's family.
func (o Options) start(ctx context.Context, background func(func() error)) error {
	outbound := tcpProxy{podName: o.Name, direction: path.Outbound}
	inbound := tcpProxy{podName: o.Name, direction: path.Inbound, transparent: o.Transparent}
	servers := map[uint16]func(net.Listener) error{
		outboundPort: func(l net.Listener) error { return outbound.serve(ctx, l) },
		inboundPort:  func(l net.Listener) error { return inbound.serve(ctx, l) },
	}
	for _, port := range localPorts {
		handler := server.Handler(o.Name, fmt.Sprintf("proxy %d", port))
		servers[port] = func(l net.Listener) error { return http.Serve(l, handler) }
	}
	for port, serve := range servers {
		var config net.ListenConfig
		if port == inboundPort && o.Transparent {
			config.Control = Transparent
		}
		for network, host := range map[string]string{"tcp4": "0.0.0.0", "tcp6": "::"} {
			l, err := config.Listen(ctx, network, net.JoinHostPort(host, strconv.Itoa(int(port))))
			if network == "tcp6" && IsNoIPv6(err) {
				continue
			}
			if err != nil {
				return err
			}
			background(func() error { return serve(l) })
			background(func() error {
				<-ctx.Done()
				return l.Close()
			})
		}
	}
	return o.startDNS(ctx, background)
}
