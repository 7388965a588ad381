package bench

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"github.com/sluice-mesh/sluice/e2e/bench/report"
	"github.com/sluice-mesh/sluice/nft/netns"
)

// traceRows measure traffic while connections are traced.
func traceRows(t Tools) []Row {
	sluice := rulesApply
	sluice.name = "Sluice"
	const name = "no trace"
	tracers := []struct {
		name string
		kind report.Kind
		during
	}{
		{"rules trace, of another port", report.Sluice, t.rulesTrace("--port", "1")},
		{"rules trace", report.Sluice, t.rulesTrace()},
		{"nft monitor trace", report.Peer, t.nftMonitor},
	}
	connect := Row{
		ID: "trace-connect", Topic: "Live trace", Share: 4, Plotted: report.Rate,
		Name: "new connections of a pod with our rules while they are traced",
		Note: "As new connections above. The traces run in processes that share the cores with the connections, and print to " +
			"/dev/null. rules trace traces at most 1000 packets per second at each hook; nft monitor trace traces the first packet of " +
			"every connection.",
		Candidates: []Candidate{t.connecting(name, report.Floor, &sluice, Sidecar{}, nil)},
	}
	packets := Row{
		ID: "trace-packets", Topic: "Live trace", Share: 5, Plotted: report.Rate,
		Name: "packets of established flows of a pod with our rules while connections are traced",
		Note: "As packets of established flows above, per second of CPU time of the sender.",
		Candidates: []Candidate{
			t.sending(name, report.Floor, &sluice, Sidecar{Plain: true}, nil),
		},
	}
	for _, x := range tracers {
		connect.Candidates = append(connect.Candidates,
			t.connecting(x.name, x.kind, &sluice, Sidecar{}, x.during))
		packets.Candidates = append(packets.Candidates,
			t.sending(x.name, x.kind, &sluice, Sidecar{Plain: true}, x.during))
	}
	return []Row{connect, packets}
}

// during starts a background program in the namespace while a row is measured, and returns a
// function that ends it.
type during func(ns *netns.NS) (end func(), err error)

// start calls the function; nil starts nothing.
func (d during) start(ns *netns.NS) (end func(), err error) {
	if d == nil {
		return func() {}, nil
	}
	return d(ns)
}

// rulesTrace runs rules trace with the flags.
func (t Tools) rulesTrace(flags ...string) during {
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

// selectFirst traces the first packet of each connection.
const selectFirst = `table inet monitored {
	chain output { type filter hook output priority raw; tcp flags & (fin|syn|rst|ack) == syn meta nftrace set 1; }
}`

// nftMonitor runs nft monitor trace.
func (t Tools) nftMonitor(ns *netns.NS) (func(), error) {
	c, err := t.Command(ns, "nft", []byte(selectFirst), "-f", "-")
	if err != nil {
		return nil, err
	}
	if _, err := c.run(); err != nil {
		return nil, err
	}
	if c, err = t.Command(ns, "nft", nil, "monitor", "trace"); err != nil {
		return nil, err
	}
	return c.background(listensToNetlink)
}

// listensToNetlink waits until the process has joined a multicast group of NETLINK_NETFILTER.
func listensToNetlink(pid int, _ io.Reader) error {
	const netfilter, patience = "12", 10 * time.Second
	for begin := time.Now(); time.Since(begin) < patience; time.Sleep(time.Millisecond) {
		sockets, err := os.ReadFile(fmt.Sprintf("/proc/%d/net/netlink", pid))
		if err != nil {
			return err
		}
		for line := range strings.Lines(string(sockets)) {
			f := strings.Fields(line) // sk, protocol, port id, groups, ...
			if len(f) > 3 && f[1] == netfilter && f[2] == fmt.Sprint(pid) && f[3] != "00000000" {
				return nil
			}
		}
	}
	return errors.New("nft monitor trace has not joined a netlink group")
}

// background starts the command, with its output discarded, and returns a function that ends it.
// ready waits until the command works.
func (c *Command) background(
	ready func(pid int, stderr io.Reader) error,
) (end func(), err error) {
	cmd := exec.Command(c.Path, c.Args...)
	cmd.Env, cmd.Stdin = c.Env, bytes.NewReader(c.Stdin)
	stderr, err := cmd.StderrPipe()
	if err != nil {
		return nil, err
	}
	if err := c.In.Do(cmd.Start); err != nil {
		return nil, fmt.Errorf("%s: %w", c.Path, err)
	}
	end = func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait()
	}
	if err := ready(cmd.Process.Pid, stderr); err != nil {
		end()
		return nil, err
	}
	go func() { _, _ = io.Copy(io.Discard, stderr) }()
	return end, nil
}
