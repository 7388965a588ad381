// Command mesh is a sample application of a mesh and the proxy beside it, for tests, in one
// program:
//
//	mesh proxy sidecar [-transparent]             the proxy that stands for Envoy; its arguments begin as pilot-agent's
//	mesh serve [-tcp 8080,9090] [-udp 7000]       an application: HTTP and UDP servers that tell what they see
//	mesh dns [-at :53]                            a DNS server that tells what it sees
//	mesh get [-wait 5s] [-captured] URL           one request; -captured: that both proxies carry it, or exit with 1
//	mesh udp [-wait 5s] ADDRESS:PORT              one datagram
//	mesh lookup [-wait 5s] [-tcp] [-6] [-server ADDRESS:PORT] NAME
//
// What a request met is printed as JSON. The pod is $POD_NAME, or the host's name.
package main

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

// commands by name.
var commands = map[string]func(ctx context.Context, pod string, args []string) error{
	"proxy": runProxy, "serve": runServe, "dns": runDNS, "get": runGet, "udp": runUDP, "lookup": runLookup,
}

// terminationFile is where the kubelet looks for what a container says last.
const terminationFile = "/dev/termination-log"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "mesh:", err)
		if f, openErr := os.OpenFile(terminationFile, os.O_WRONLY, 0); openErr == nil {
			fmt.Fprintln(f, err)
			_ = f.Close()
		}
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	if len(args) == 0 || commands[args[0]] == nil {
		return fmt.Errorf("%q: want proxy, serve, dns, get, udp or lookup", args)
	}
	host, err := os.Hostname()
	if err != nil {
		return err
	}
	return commands[args[0]](ctx, cmp.Or(os.Getenv("POD_NAME"), host), args[1:])
}
