package main

import (
	"context"
	"flag"
	"fmt"
	"net/netip"
	"strings"

	"github.com/sluice-mesh/sluice/e2e/mesh/ztunnel"
	agent "github.com/sluice-mesh/sluice/install/ztunnel"
)

func runZtunnel(ctx context.Context, _ string, args []string) error {
	flags := flag.NewFlagSet("ztunnel", flag.ContinueOnError)
	socket := flags.String("socket", agent.DefaultSocket, "socket of the agent")
	resolver := flags.String("resolver", "", "DNS server with port; the pod's if empty")
	mesh := flags.String("mesh", "", "prefixes of pods that other ztunnels serve, separated by commas")
	if err := flags.Parse(args); err != nil {
		return err
	}
	o := ztunnel.Options{Socket: *socket, Resolver: *resolver}
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
	return ztunnel.Run(ctx, o)
}
