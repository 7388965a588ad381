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

	"github.com/sluice-mesh/sluice/e2e/mesh/name"
	"github.com/sluice-mesh/sluice/e2e/mesh/proxy"
	"github.com/sluice-mesh/sluice/e2e/mesh/server"
)

func runProxy(ctx context.Context, pod string, args []string) error {
	flags := flag.NewFlagSet("proxy", flag.ContinueOnError)
	transparent := flags.Bool("transparent", false,
		"take inbound connections as TPROXY hands them over")
	resolver := flags.String("resolver", "", "DNS server with port; the pod's if empty")
	if len(args) == 0 || args[0] != "sidecar" {
		return fmt.Errorf("proxy %q: want the type, which is sidecar", args)
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
	tcp := flags.String("tcp", "8080", "ports with commas between them")
	udp := flags.String("udp", "", "a port")
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
		go func() { fail(server.Echo(ctx, ":"+*udp, pod)) }()
	}
	<-ctx.Done()
	return ended(ctx)
}

func runDNS(ctx context.Context, pod string, args []string) error {
	flags := flag.NewFlagSet("dns", flag.ContinueOnError)
	at := flags.String("at", ":53", "address with port")
	if err := flags.Parse(args); err != nil {
		return err
	}
	return name.Serve(ctx, *at, func(_ string, query []byte, peer netip.AddrPort) ([]byte, error) {
		return name.Answer(query, pod, netip.AddrPortFrom(peer.Addr().Unmap(), peer.Port()))
	})
}

// ended returns nil if the process ended because of a signal.
func ended(ctx context.Context) error {
	if err := context.Cause(ctx); !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// podResolver returns the first DNS server of the pod, with port.
func podResolver() string {
	text, err := os.ReadFile("/etc/resolv.conf")
	if err != nil {
		fmt.Fprintln(os.Stderr, "mesh:", err)
	}
	for line := range strings.SplitSeq(string(text), "\n") {
		if fields := strings.Fields(line); len(fields) == 2 && fields[0] == "nameserver" {
			return net.JoinHostPort(fields[1], "53")
		}
	}
	return ""
}
