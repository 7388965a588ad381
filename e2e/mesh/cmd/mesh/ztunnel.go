package main

import (
	"context"
	"flag"
	"fmt"
	"net/http"
	"net/netip"
	"strings"

	"github.com/sluice-mesh/sluice/e2e/mesh/ztunnel"
	agent "github.com/sluice-mesh/sluice/install/ztunnel"
)

func runZtunnel(ctx context.Context, _ string, args []string) error {
	flags := flag.NewFlagSet("ztunnel", flag.ContinueOnError)
	socket := flags.String("socket", agent.DefaultSocket, "`path` of the agent's socket")
	resolver := flags.String("resolver", "",
		"`address:port` of the DNS server (default from /etc/resolv.conf)")
	mesh := flags.String("mesh", "", "`prefixes` of mesh pods on other nodes, separated by commas")
	ready := flags.String("ready", "",
		"`address:port` of an HTTP server that starts when all pods are served")
	if err := flags.Parse(args); err != nil {
		return err
	}
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	o := ztunnel.Options{Socket: *socket, Resolver: *resolver}
	if *ready != "" {
		o.Synced = func() {
			go func() {
				respondOK := func(http.ResponseWriter, *http.Request) {}
				fail(http.ListenAndServe(*ready, http.HandlerFunc(respondOK)))
			}()
		}
	}
	if o.Resolver == "" {
		o.Resolver = podResolver()
	}
	for text := range strings.SplitSeq(*mesh, ",") {
		if text == "" {
			continue
		}
		prefix, err := netip.ParsePrefix(text)
		if err != nil {
			return fmt.Errorf("-mesh: %w", err)
		}
		o.Mesh = append(o.Mesh, prefix)
	}
	if err := ztunnel.Run(ctx, o); err != nil {
		return err
	}
	return cause(ctx)
}
