package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strings"

	"github.com/miekg/dns"

	"github.com/sluice-mesh/sluice/e2e/mesh/name"
	"github.com/sluice-mesh/sluice/e2e/mesh/proxy"
	"github.com/sluice-mesh/sluice/e2e/mesh/server"
)

func runProxy(ctx context.Context, pod string, args []string) error {
	flags := flag.NewFlagSet("proxy", flag.ContinueOnError)
	transparent := flags.Bool("transparent", false,
		"accept inbound connections redirected by TPROXY")
	resolver := flags.String("resolver", "",
		"`address:port` of the DNS server (default from /etc/resolv.conf)")
	if len(args) == 0 || args[0] != "sidecar" {
		return fmt.Errorf("proxy %q: want the proxy type sidecar", args)
	}
	if err := flags.Parse(args[1:]); err != nil {
		return err
	}
	if *resolver == "" {
		*resolver = podResolver()
	}
	return proxy.Run(ctx, proxy.Options{Name: pod, Transparent: *transparent, Resolver: *resolver})
}

func runServe(ctx context.Context, pod string, args []string) error {
	flags := flag.NewFlagSet("serve", flag.ContinueOnError)
	tcp := flags.String("tcp", "8080", "`ports` of the HTTP servers, separated by commas")
	udp := flags.String("udp", "", "`port` of the UDP server (default none)")
	if err := flags.Parse(args); err != nil {
		return err
	}
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	handler := server.Handler(pod, "app")
	for port := range strings.SplitSeq(*tcp, ",") {
		go func() { fail(http.ListenAndServe(":"+port, handler)) }()
	}
	if *udp != "" {
		go func() { fail(server.ServeUDP(ctx, ":"+*udp, pod)) }()
	}
	<-ctx.Done()
	return cause(ctx)
}

func runDNS(ctx context.Context, pod string, args []string) error {
	flags := flag.NewFlagSet("dns", flag.ContinueOnError)
	at := flags.String("at", ":53", "`address:port` to listen on")
	if err := flags.Parse(args); err != nil {
		return err
	}
	respond := func(_ string, query *dns.Msg, peer netip.AddrPort) (*dns.Msg, error) {
		return name.Answer(query, pod, peer), nil
	}
	return name.Serve(ctx, *at, respond)
}

// cause returns nil if ctx was canceled by a signal, and otherwise the cause.
func cause(ctx context.Context) error {
	if err := context.Cause(ctx); !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// podResolver returns the address and port of the pod's first DNS server, or an empty string.
func podResolver() string {
	config, err := dns.ClientConfigFromFile("/etc/resolv.conf")
	if err != nil {
		fmt.Fprintln(os.Stderr, "mesh:", err)
	}
	if err != nil || len(config.Servers) == 0 {
		return ""
	}
	return net.JoinHostPort(config.Servers[0], config.Port)
}
