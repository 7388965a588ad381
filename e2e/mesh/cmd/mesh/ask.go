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

// asking returns the flags that all client commands have.
func asking(name string) (flags *flag.FlagSet, wait *time.Duration) {
	flags = flag.NewFlagSet(name, flag.ContinueOnError)
	return flags, flags.Duration("wait", 0, "try again for so long while nobody answers")
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

func runGet(ctx context.Context, pod string, args []string) error {
	flags, wait := asking("get")
	captured := flags.Bool("captured", false, "both proxies are to carry the request")
	held := flags.Bool("hold", false, "keep the connection until the standard input ends")
	url, err := argument(flags, args)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, *wait)
	defer cancel()
	hold := func() {}
	if *held {
		hold = func() { _, _ = io.Copy(io.Discard, os.Stdin) }
	}
	report := client.Get(ctx, pod, url, hold)
	if *captured {
		err = report.Check(path.Captured(""))
	}
	return errors.Join(show(report), err)
}

func runUDP(ctx context.Context, pod string, args []string) error {
	flags, wait := asking("udp")
	to, err := argument(flags, args)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, *wait)
	defer cancel()
	return show(client.Datagram(ctx, pod, to))
}

func runLookup(ctx context.Context, _ string, args []string) error {
	flags, wait := asking("lookup")
	tcp := flags.Bool("tcp", false, "ask by TCP")
	six := flags.Bool("6", false, "ask for the IPv6 address")
	resolver := flags.String("server", "", "DNS server with port; the pod's if empty")
	host, err := argument(flags, args)
	if err != nil {
		return err
	}
	l := client.Lookup{Name: host, Six: *six, Network: "udp", Resolver: *resolver}
	if *tcp {
		l.Network = "tcp"
	}
	if l.Resolver == "" {
		l.Resolver = podResolver()
	}
	ctx, cancel := context.WithTimeout(ctx, *wait)
	defer cancel()
	return show(l.Ask(ctx))
}

func show(value any) error { return json.NewEncoder(os.Stdout).Encode(value) }
