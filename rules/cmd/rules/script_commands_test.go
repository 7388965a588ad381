package main

import (
	"bytes"
	"errors"
	"net"
	"os"
	"os/exec"
	"strconv"
	"syscall"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/vishvananda/netlink"
)

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
func scriptProxy(ts *testscript.TestScript, _ bool, args []string) {
	ns := openNamespace(ts, args[0])
	defer ns.Close()
	var stdout, stderr bytes.Buffer
	cmd := &exec.Cmd{
		// Only root can read the directory of the script's own executable.
		Path: "/proc/self/exe", Args: args[2:], Dir: "/",
		Env:    append(os.Environ(), "GORACE=atexit_sleep_ms=0"),
		Stdout: &stdout, Stderr: &stderr,
		SysProcAttr: &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 1337, Gid: 1337}},
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
