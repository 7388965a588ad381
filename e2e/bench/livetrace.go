package bench

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/e2e/bench/report"
	"github.com/sluice-mesh/sluice/nft/netns"
)

// traceRows returns rows that measure traffic while connections are traced.
func traceRows(t Tools) []Row {
	sluice := rulesApply
	sluice.name = "Sluice"
	const name = "no trace"
	tracers := []struct {
		name string
		kind report.Kind
		backgroundProgram
	}{
		{"rules trace, of another port", report.Sluice, t.rulesTrace("--port", "1")},
		{"rules trace", report.Sluice, t.rulesTrace()},
		{"nft monitor trace", report.Peer, t.nftMonitor},
	}
	connect := Row{
		ID: "trace-connect", Topic: "Live trace", RoundsFactor: 4, Plotted: report.Rate,
		Name: "new connections of a pod with Sluice's rules, with and without a trace",
		Candidates: []Candidate{
			t.connectCandidate(name, report.Floor, podSetup{installer: &sluice}),
		},
	}
	packets := Row{
		ID: "trace-packets", Topic: "Live trace", RoundsFactor: 5, Plotted: report.Rate,
		Name: "packets of established flows of a pod with Sluice's rules, with and without a trace",
		Candidates: []Candidate{
			t.sendCandidate(name, report.Floor,
				podSetup{installer: &sluice, sidecar: Sidecar{WithoutDNS: true}}),
		},
	}
	for _, tracer := range tracers {
		connect.Candidates = append(connect.Candidates,
			t.connectCandidate(tracer.name, tracer.kind,
				podSetup{installer: &sluice, background: tracer.backgroundProgram}))
		packets.Candidates = append(packets.Candidates,
			t.sendCandidate(tracer.name, tracer.kind, podSetup{
				installer: &sluice, sidecar: Sidecar{WithoutDNS: true},
				background: tracer.backgroundProgram,
			}))
	}
	return []Row{connect, packets}
}

// A backgroundProgram starts a program that runs in the namespace while a row is measured, and
// returns a function that ends it.
type backgroundProgram func(ns *netns.NS) (end func(), err error)

// rulesTrace returns the program rules trace with the flags.
func (t Tools) rulesTrace(flags ...string) backgroundProgram {
	return func(ns *netns.NS) (func(), error) {
		c, err := t.Command(ns, "rules", nil, append([]string{"trace"}, flags...)...)
		if err != nil {
			return nil, err
		}
		return c.background(func(_ int, stderr io.Reader) error {
			lines := bufio.NewScanner(stderr)
			for lines.Scan() {
				if strings.HasPrefix(lines.Text(), "rules: tracing ") {
					return nil
				}
			}
			return errors.New("rules trace exited before tracing started")
		})
	}
}

// traceFirstPackets contains rules that trace the first packet of each connection.
const traceFirstPackets = `table inet monitored {
	chain output {
		type filter hook output priority raw
		tcp flags & (fin|syn|rst|ack) == syn meta nftrace set 1
	}
}`

// nftMonitor starts nft monitor trace. It is a backgroundProgram.
func (t Tools) nftMonitor(ns *netns.NS) (func(), error) {
	c, err := t.Command(ns, "nft", []byte(traceFirstPackets), "-f", "-")
	if err != nil {
		return nil, err
	}
	if err := c.Run(); err != nil {
		return nil, err
	}
	if c, err = t.Command(ns, "nft", nil, "monitor", "trace"); err != nil {
		return nil, err
	}
	return c.background(waitForNetlinkGroup)
}

// waitForNetlinkGroup waits until the process has joined a multicast group of NETLINK_NETFILTER.
func waitForNetlinkGroup(pid int, _ io.Reader) error {
	const timeout = 10 * time.Second
	netfilter := strconv.Itoa(unix.NETLINK_NETFILTER)
	for begin := time.Now(); time.Since(begin) < timeout; time.Sleep(time.Millisecond) {
		sockets, err := os.ReadFile(fmt.Sprintf("/proc/%d/net/netlink", pid))
		if err != nil {
			return err
		}
		for line := range strings.Lines(string(sockets)) {
			fields := strings.Fields(line) // socket, protocol, port ID, groups, ...
			if len(fields) < 4 {
				continue
			}
			protocol, portID, groups := fields[1], fields[2], fields[3]
			if protocol == netfilter && portID == strconv.Itoa(pid) && groups != "00000000" {
				return nil
			}
		}
	}
	return fmt.Errorf("nft monitor trace has not joined a netlink group after %s", timeout)
}

// background starts the command, waits with waitReady until the command is ready, and returns a
// function that ends the command. Standard output is discarded; so is standard error after
// waitReady has returned.
func (c *Command) background(
	waitReady func(pid int, stderr io.Reader) error,
) (end func(), err error) {
	cmd := exec.Command(c.Path, c.Args...)
	cmd.Env, cmd.Stdin = c.Env, bytes.NewReader(c.Stdin)
	stderr, err := cmd.StderrPipe()
	if err != nil {
		return nil, err
	}
	if err := c.NS.Do(cmd.Start); err != nil {
		return nil, fmt.Errorf("%s: %w", c.Path, err)
	}
	end = func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait()
	}
	if err := waitReady(cmd.Process.Pid, stderr); err != nil {
		end()
		return nil, err
	}
	go func() { _, _ = io.Copy(io.Discard, stderr) }()
	return end, nil
}
