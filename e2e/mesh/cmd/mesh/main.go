// Command mesh contains a sample application of a mesh and its sidecar proxy, for tests:
//
//	mesh proxy sidecar [-transparent]             the proxy, a replacement for Envoy
//	mesh ztunnel [-socket PATH] [-mesh CIDR,CIDR] a replacement for ztunnel
//	mesh serve [-tcp 8080,9090] [-udp 7000]       the application: HTTP and UDP servers
//	mesh dns [-at :53]                            a DNS server
//	mesh get [-wait 5s] [-captured] [-hold] URL   sends a request; with -captured, it fails
//	                                              unless both proxies forward the request
//	mesh udp [-wait 5s] ADDRESS:PORT              sends a datagram
//	mesh lookup [-wait 5s] [-tcp] [-6] NAME       sends a DNS query
//
// Like pilot-agent, the proxy requires the arguments "proxy sidecar". Servers report the addresses
// and the proxies of a request, and clients print these reports as JSON. The name of the pod is
// $POD_NAME, or the host's name. The flag -h of each command prints all flags.
package main

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

// commands maps the first argument to the function that runs the command.
var commands = map[string]func(ctx context.Context, pod string, args []string) error{
	"proxy": runProxy, "serve": runServe, "dns": runDNS, "get": runGet, "udp": runUDP,
	"lookup": runLookup, "ztunnel": runZtunnel,
}

// terminationFile is the file from which the kubelet reads a container's termination message.
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
		return fmt.Errorf("arguments %q: want proxy, ztunnel, serve, dns, get, udp or lookup", args)
	}
	host, err := os.Hostname()
	if err != nil {
		return err
	}
	return commands[args[0]](ctx, cmp.Or(os.Getenv("POD_NAME"), host), args[1:])
}
