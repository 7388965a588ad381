package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/compat"
	"github.com/sluice-mesh/sluice/install/serve"
	"github.com/sluice-mesh/sluice/install/serve/servetest"
	"github.com/sluice-mesh/sluice/nft"
	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/nft/route"
	"github.com/sluice-mesh/sluice/plugin/agent"
)

// scriptCommands contains the commands of the scripts in testdata.
var scriptCommands = map[string]func(ts *testscript.TestScript, neg bool, args []string){
	"status":    scriptStatus,
	"namespace": scriptNamespace,
	"netns":     scriptNetns,
	"within":    scriptWithin,
	"untouched": scriptUntouched,
	"device":    scriptDevice,
	"proxy":     scriptProxy,
	"admin":     scriptAdmin,
	"agent":     scriptAgent,
}

// scriptStatus runs a command and requires an exit code: status CODE COMMAND ARGUMENT...
func scriptStatus(ts *testscript.TestScript, _ bool, args []string) {
	got, want := "0", args[0]
	if err := ts.Exec(args[1], args[2:]...); err != nil {
		got = strings.TrimPrefix(err.Error(), "exit status ")
	}
	if got != want {
		ts.Fatalf("exit status %s, want %s", got, want)
	}
}

// scriptAgent starts a node agent that returns a status: agent RUNDIR FILE.
func scriptAgent(ts *testscript.TestScript, _ bool, args []string) {
	status := json.RawMessage(ts.ReadFile(args[1]))
	server := serve.New(servetest.Fill(serve.Options{
		Socket: agent.SocketIn(ts.MkAbs(args[0])),
		Status: func() any {
			return status
		},
	}))
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		server.Run(ctx)
	}()
	ts.Defer(func() {
		cancel()
		<-done
	})
	for !server.Listening() {
		time.Sleep(time.Millisecond)
	}
}

// scriptNamespace creates a network namespace with the addresses on lo: namespace NAME
// ADDRESS/LENGTH... The file NAME is a symbolic link to the namespace.
func scriptNamespace(ts *testscript.TestScript, _ bool, args []string) {
	ns, err := netns.New()
	ts.Check(err)
	ts.Defer(func() { _ = ns.Close() })
	ts.Check(ns.Do(func() error { return addAddresses(args[1:]) }))
	ts.Check(os.Symlink(fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), ns.FD()), ts.MkAbs(args[0])))
}

// scriptNetns creates a namespace in the directory of ip-netns(8): netns NAME.
func scriptNetns(ts *testscript.TestScript, _ bool, args []string) {
	ns, err := netns.New()
	ts.Check(err)
	ts.Defer(func() { _ = ns.Close() })
	ts.Check(os.MkdirAll(namedNamespaces, 0o755))
	path := filepath.Join(namedNamespaces, args[0])
	_ = unix.Unmount(path, unix.MNT_DETACH) // of a killed run
	_ = os.Remove(path)
	ts.Check(os.WriteFile(path, nil, 0o444))
	ts.Defer(func() { _ = os.Remove(path) })
	ts.Check(unix.Mount(fmt.Sprintf("/proc/self/fd/%d", ns.FD()), path, "", unix.MS_BIND, ""))
	ts.Defer(func() { _ = unix.Unmount(path, unix.MNT_DETACH) })
}

// addAddresses adds the addresses to lo in the namespace of the thread.
func addAddresses(prefixes []string) error {
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return err
	}
	if err := netlink.LinkSetUp(lo); err != nil {
		return err
	}
	for _, text := range prefixes {
		a, err := netlink.ParseAddr(text)
		if err != nil {
			return err
		}
		if err := netlink.AddrAdd(lo, a); err != nil {
			return fmt.Errorf("address %s: %w", text, err)
		}
	}
	return nil
}

// openNamespace opens a namespace that the script created.
func openNamespace(ts *testscript.TestScript, name string) *netns.NS {
	ns, err := netns.Open(ts.MkAbs(name))
	ts.Check(err)
	return ns
}

// scriptWithin runs a command in a namespace: within NAME COMMAND ARGUMENT...
func scriptWithin(ts *testscript.TestScript, neg bool, args []string) {
	ns := openNamespace(ts, args[0])
	defer ns.Close()
	err := ns.Do(func() error { return ts.Exec(args[1], args[2:]...) })
	if (err != nil) != neg {
		ts.Fatalf("within %s: error %v, want an error: %v", args, err, neg)
	}
}

// scriptUntouched requires that the namespace has no nftables table, no rules of Sluice in
// iptables-legacy, and no route of Sluice: untouched NAME
func scriptUntouched(ts *testscript.TestScript, neg bool, args []string) {
	ns := openNamespace(ts, args[0])
	defer ns.Close()
	all, err := nft.ReadAll(ns)
	ts.Check(err)
	routing, err := route.Read(ns)
	ts.Check(err)
	installed, err := compat.InstalledBackends(ns)
	ts.Check(err)
	if untouched := len(all.Tables)+len(installed) == 0 && routing.IsZero(); untouched == neg {
		ts.Fatalf("untouched: %v, want %v; tables:\n%s", untouched, neg, all)
	}
}

// scriptDevice adds an interface with addresses and default routes to a namespace: device NAMESPACE
// INTERFACE ADDRESS/LENGTH...
func scriptDevice(ts *testscript.TestScript, _ bool, args []string) {
	ns := openNamespace(ts, args[0])
	defer ns.Close()
	ts.Check(ns.Do(func() error {
		attrs := netlink.NewLinkAttrs()
		attrs.Name = args[1]
		if err := netlink.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: "peer-" +
			args[1]}); err != nil {
			return err
		}
		link, err := netlink.LinkByName(args[1])
		if err != nil {
			return err
		}
		errs := []error{netlink.LinkSetUp(link)}
		for _, text := range args[2:] {
			a, err := netlink.ParseAddr(text)
			if err != nil {
				return err
			}
			a.Flags = syscall.IFA_F_NODAD
			errs = append(errs, netlink.AddrAdd(link, a))
			size := len(a.Mask)
			all := &net.IPNet{IP: make(net.IP, size), Mask: make(net.IPMask, size)}
			errs = append(errs, netlink.RouteAdd(&netlink.Route{
				LinkIndex: link.Attrs().Index, Dst: all,
			}))
		}
		return errors.Join(errs...)
	}))
}

// scriptProxy runs rules in a namespace as the proxy's user and without capabilities, writes the
// output to the files out and err, and requires an exit code: proxy NAMESPACE CODE rules
// ARGUMENT...
func scriptProxy(ts *testscript.TestScript, _ bool, args []string) { runAsProxy(ts, args) }

// scriptAdmin is like scriptProxy, but the process has CAP_NET_ADMIN.
func scriptAdmin(ts *testscript.TestScript, _ bool, args []string) {
	runAsProxy(ts, args, unix.CAP_NET_ADMIN)
}

// runAsProxy runs a command of scriptProxy with the capabilities.
func runAsProxy(ts *testscript.TestScript, args []string, capabilities ...uintptr) {
	ns := openNamespace(ts, args[0])
	defer ns.Close()
	var stdout, stderr bytes.Buffer
	cmd := &exec.Cmd{
		// Only root can read the directory of the script's own executable.
		Path: "/proc/self/exe", Args: args[2:], Dir: "/",
		Env:    append(os.Environ(), "GORACE=atexit_sleep_ms=0"),
		Stdout: &stdout, Stderr: &stderr,
		SysProcAttr: &syscall.SysProcAttr{
			Credential:  &syscall.Credential{Uid: 1337, Gid: 1337},
			AmbientCaps: capabilities,
		},
	}
	err := ns.Do(cmd.Run)
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		ts.Fatalf("%v", err)
	}
	ts.Check(os.WriteFile(ts.MkAbs("out"), stdout.Bytes(), 0o600))
	ts.Check(os.WriteFile(ts.MkAbs("err"), stderr.Bytes(), 0o600))
	if got := strconv.Itoa(cmd.ProcessState.ExitCode()); got != args[1] {
		ts.Fatalf("exit status %s, want %s\n%s%s", got, args[1], stdout.String(), stderr.String())
	}
}
