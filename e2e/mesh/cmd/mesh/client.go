package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"io"
	"os"
	"time"

	"github.com/sluice-mesh/sluice/e2e/mesh/client"
	"github.com/sluice-mesh/sluice/e2e/mesh/path"
)

// clientFlags returns the flags that all client commands share.
func clientFlags(name string) (flags *flag.FlagSet, wait *time.Duration) {
	flags = flag.NewFlagSet(name, flag.ContinueOnError)
	return flags, flags.Duration("wait", 0,
		"retry for up to this `duration` if there is no response (default: one attempt)")
}

// argument parses the flags and returns the single argument.
func argument(flags *flag.FlagSet, args []string) (string, error) {
	if err := flags.Parse(args); err != nil {
		return "", err
	}
	if flags.NArg() != 1 {
		return "", errors.New(flags.Name() + ": want one argument")
	}
	return flags.Arg(0), nil
}

func runGet(ctx context.Context, caller string, args []string) error {
	flags, wait := clientFlags("get")
	captured := flags.Bool("captured", false, "fail unless both proxies forward the request")
	keepOpen := flags.Bool("hold", false,
		"keep the connection open until the end of standard input")
	url, err := argument(flags, args)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, *wait)
	defer cancel()
	hold := func() {}
	if *keepOpen {
		hold = func() { _, _ = io.Copy(io.Discard, os.Stdin) }
	}
	report := client.Get(ctx, caller, url, hold)
	if *captured {
		err = report.Check(path.Captured("" /* any server */))
	}
	return errors.Join(printJSON(report), err)
}

func runUDP(ctx context.Context, caller string, args []string) error {
	flags, wait := clientFlags("udp")
	to, err := argument(flags, args)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, *wait)
	defer cancel()
	return printJSON(client.Datagram(ctx, caller, to))
}

func runLookup(ctx context.Context, _ string, args []string) error {
	flags, wait := clientFlags("lookup")
	tcp := flags.Bool("tcp", false, "send the query over TCP")
	ipv6 := flags.Bool("6", false, "query AAAA records instead of A records")
	resolver := flags.String("server", "",
		"`address:port` of the DNS server (default from /etc/resolv.conf)")
	host, err := argument(flags, args)
	if err != nil {
		return err
	}
	l := client.Lookup{Name: host, IPv6: *ipv6, Network: "udp", Resolver: *resolver}
	if *tcp {
		l.Network = "tcp"
	}
	if l.Resolver == "" {
		l.Resolver = podResolver()
	}
	ctx, cancel := context.WithTimeout(ctx, *wait)
	defer cancel()
	return printJSON(l.Do(ctx))
}

func printJSON(value any) error { return json.NewEncoder(os.Stdout).Encode(value) }
