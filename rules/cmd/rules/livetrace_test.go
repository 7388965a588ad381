package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/nft"
	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
	"github.com/sluice-mesh/sluice/nft/trace"
	"github.com/sluice-mesh/sluice/rules"
)

// within runs a program in the namespace.
func within(t *testing.T, ns *netns.NS, program string, args ...string) {
	t.Helper()
	cmd := exec.Command(netnstest.RequireBinary(t, program), args...)
	err := ns.Do(func() error {
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// listenAt listens in the namespace until the test ends.
func listenAt(t *testing.T, ns *netns.NS, address string) {
	t.Helper()
	err := ns.Do(func() error {
		l, err := net.Listen("tcp4", address)
		if err == nil {
			t.Cleanup(func() { _ = l.Close() })
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// startTrace starts rules trace, and returns its output once it traces. end interrupts the command
// as Ctrl-C does, and returns the exit code.
func startTrace(t *testing.T, ns *netns.NS, args ...string) (lines *bufio.Scanner, end func() int) {
	t.Helper()
	out, in := io.Pipe()
	messages, errs := io.Pipe()
	s := thisSystem()
	s.stdout, s.stderr = in, errs
	done := make(chan int, 1)
	go func() {
		done <- run(s,
			append([]string{"trace", "--netns", fmt.Sprintf("/proc/self/fd/%d", ns.FD())}, args...))
		_ = in.Close()
		_ = errs.Close()
	}()
	stderr := bufio.NewScanner(messages)
	for stderr.Scan() && !strings.HasPrefix(stderr.Text(), "rules: tracing") {
		t.Log(stderr.Text())
	}
	go func() { _, _ = io.Copy(io.Discard, messages) }()
	return bufio.NewScanner(out), func() int {
		if err := unix.Kill(os.Getpid(), unix.SIGINT); err != nil {
			t.Fatal(err)
		}
		go func() { _, _ = io.Copy(io.Discard, out) }()
		return <-done
	}
}

// A trace reads the rules again when they change. It repeats no warning about them.
func TestTraceDoesNotRepeatWarnings(t *testing.T) {
	ns := netnstest.New(t)
	within(t, ns, "ip", "rule", "add", "priority", "7", "fwmark", "5", "lookup", "100")
	s, errs := testSystem()
	tracer := liveTracer{s: s, ns: ns}
	for range 3 {
		if err := tracer.readRuleset(); err != nil {
			t.Fatal(err)
		}
	}
	if n := strings.Count(errs.String(), "left out: ip -4 rule priority 7"); n != 1 {
		t.Errorf("got %q, want one warning about the policy rule", errs)
	}
}

func TestTraceOfRealConnections(t *testing.T) {
	pair := netnstest.NewPair(t)
	path := fmt.Sprintf("/proc/self/fd/%d", pair.Pod.FD())
	s := thisSystem()
	s.stdout, s.stderr = io.Discard, os.Stderr
	if code := run(s, []string{
		"apply", "--netns", path, "-b", "*", "-i", "*", "--istio-local-outbound-ports-exclude",
		"5432,5433,5434",
	}); code != 0 {
		t.Fatalf("rules apply: exit code %d, want 0", code)
	}
	within(t, pair.Pod, "nft",
		`table ip firewall { chain late { type filter hook output priority 20; tcp dport 5433 drop comment "no databases"; }; }`)
	within(t, pair.Pod, "iptables-nft", "-A", "OUTPUT", "-p", "tcp", "--dport", "5434", "-j",
		"DROP")
	listenAt(t, pair.Pod, ":15001")
	listenAt(t, pair.Neighbor, ":5432")

	lines, end := startTrace(t, pair.Pod, "--out", "-v")
	for _, tc := range []struct {
		port  int
		wants []string
	}{
		{
			443,
			[]string{
				": captured: outbound to the proxy (15001)",
				"output: sluice chain inet sluice nat-output",
				"[ct state new]",
				"listener 0.0.0.0:15001",
				"10.9.9.9:443: connected by 127.0.0.1:15001",
			},
		},
		{
			5432,
			[]string{
				": not captured: excluded outbound port 5432",
				"10.9.9.9:5432: connected by 10.9.9.9:5432",
			},
		},
		{5433, []string{": dropped by nft chain ip firewall late rule 1", "# no databases"}},
		{5434, []string{": dropped by iptables-nft chain ip filter OUTPUT rule 1"}},
	} {
		disconnect := connect(t, pair.Pod, "", fmt.Sprintf("10.9.9.9:%d", tc.port), 0)
		block := ""
		for lines.Scan() {
			if strings.Contains(lines.Text(), fmt.Sprintf("> 10.9.9.9:%d uid 0", tc.port)) {
				block = lines.Text()
				break
			}
		}
		// The path of the packet and differences are on separate lines.
		for lines.Scan() {
			block += "\n" + lines.Text()
			if strings.Contains(lines.Text(), " answer tcp ") || strings.Contains(block, "dropped") {
				break
			}
		}
		disconnect()
		for _, want := range tc.wants {
			if !strings.Contains(block, want) {
				t.Errorf("port %d: got %s\nwant %q", tc.port, block, want)
			}
		}
		if strings.Contains(block, "model") {
			t.Errorf("port %d: kernel and model differ, or were not compared: %s", tc.port, block)
		}
	}
	if code := end(); code != 0 {
		t.Errorf("exit code %d after an interrupt, want 0", code)
	}
	rs, err := nft.ReadAll(pair.Pod)
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range rs.Tables {
		if x.Name == trace.Table {
			t.Error("the table of the trace remains after its end")
		}
	}
}

// A trace of a pod in ambient mode reports which connections go to ztunnel, and whether ztunnel
// listens.
func TestTraceOfAPodInAmbientMode(t *testing.T) {
	for _, backend := range []string{"nft", "legacy"} {
		t.Run(backend, func(t *testing.T) {
			pair := netnstest.NewPair(t)
			s := thisSystem()
			s.stdout, s.stderr = io.Discard, os.Stderr
			if code := run(s, []string{
				"apply", "--ambient", "--netns", fmt.Sprintf("/proc/self/fd/%d", pair.Pod.FD()), "--backend", backend,
			}); code != 0 {
				t.Fatalf("rules apply: exit code %d, want 0", code)
			}
			listenAt(t, pair.Pod, ":15001")
			listenAt(t, pair.Pod, ":8080")

			lines, end := startTrace(t, pair.Pod, "-v")
			for _, tc := range []struct {
				packet string // prefix of the packet's line, after the time
				from   *netns.NS
				source string // address; empty for any
				to     string
				mark   int
				wants  []string
			}{
				{
					packet: "out tcp 10.244.1.5:", from: pair.Pod, to: "198.51.100.1:443",
					wants: []string{": captured: outbound to ztunnel (15001)", "listener 0.0.0.0:15001"},
				},
				{
					packet: "out tcp 10.244.1.5:", from: pair.Pod, to: "198.51.100.2:443", mark: rules.ZtunnelMark,
					wants: []string{": not captured: sent by ztunnel"},
				},
				{
					packet: "in tcp 10.244.1.1:", from: pair.Neighbor, to: "10.244.1.5:8080",
					wants: []string{": captured: inbound to ztunnel (15006)", "no listener on port 15006"},
				},
				{
					packet: "in tcp 169.254.7.127:", from: pair.Neighbor, source: "169.254.7.127", to: "10.244.1.5:8080",
					wants: []string{": not captured: probes of the kubelet", "listener 0.0.0.0:8080"},
				},
				{
					packet: "out tcp 10.244.1.5:", from: pair.Pod, to: "198.51.100.3:53",
					wants: []string{": captured: DNS to ztunnel (15053)", "no listener on port 15053"},
				},
			} {
				disconnect := connect(t, tc.from, tc.source, tc.to, tc.mark)
				block := blockOf(lines, tc.packet, "> "+tc.to)
				disconnect()
				for _, want := range tc.wants {
					if !strings.Contains(block, want) {
						t.Errorf("%s: got %s\nwant %q", tc.to, block, want)
					}
				}
				if strings.Contains(block, "please report") {
					t.Errorf("%s: kernel and model differ: %s", tc.to, block)
				}
			}
			if code := end(); code != 0 {
				t.Errorf("exit code %d after an interrupt, want 0", code)
			}
		})
	}
}

// blockOf reads the lines of a packet, up to the answer.
func blockOf(lines *bufio.Scanner, packet, to string) string {
	block := ""
	for lines.Scan() {
		_, line, _ := strings.Cut(lines.Text(), " ")
		switch {
		case strings.HasPrefix(line, packet) && strings.Contains(line, to):
			block = lines.Text()
		case block != "" && strings.HasPrefix(line, "answer "):
			return block
		case block != "":
			block += "\n" + lines.Text()
		}
	}
	return block
}

// connect starts a connection from the namespace, with the mark and, unless it is empty, the source
// address. disconnect closes the connection.
func connect(
	t *testing.T, ns *netns.NS, source, to string, mark int,
) (disconnect func()) {
	t.Helper()
	dialer := net.Dialer{Control: func(_, _ string, c syscall.RawConn) error {
		return c.Control(func(fd uintptr) {
			_ = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_MARK, mark)
			_ = unix.SetsockoptInt(int(fd), unix.SOL_IP, unix.IP_TRANSPARENT, 1)
		})
	}}
	if source != "" {
		dialer.LocalAddr = &net.TCPAddr{IP: net.ParseIP(source)}
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = ns.Do(func() error {
			c, err := dialer.DialContext(ctx, "tcp4", to)
			if err == nil {
				<-ctx.Done()
				_ = c.Close()
			}
			return err
		})
	}()
	return func() {
		cancel()
		<-done
	}
}

// TestTraceOfLegacyRules traces a pod with rules of Sluice and foreign rules in iptables-legacy.
func TestTraceOfLegacyRules(t *testing.T) {
	pair := netnstest.NewPair(t)
	path := fmt.Sprintf("/proc/self/fd/%d", pair.Pod.FD())
	s := thisSystem()
	s.stdout, s.stderr = io.Discard, os.Stderr
	parameters := []string{
		"--netns", path, "-b", "*", "-i", "*", "--istio-local-outbound-ports-exclude", "5432,5433",
		"--backend", "legacy",
	}
	if code := run(s, append([]string{"apply"}, parameters...)); code != 0 {
		t.Fatalf("rules apply: exit code %d, want 0", code)
	}
	within(t, pair.Pod, "iptables-legacy", "-A", "OUTPUT", "-p", "tcp", "--dport", "5433", "-j",
		"DROP")
	listenAt(t, pair.Pod, ":15001")
	listenAt(t, pair.Neighbor, ":5432")

	lines, end := startTrace(t, pair.Pod, "--out", "-v")
	for _, tc := range []struct {
		port  int
		wants []string
	}{
		{443, []string{": captured: ", "output: sluice chain ip nat SLUICE_", "(15001)"}},
		{5432, []string{": not captured: excluded outbound port 5432"}},
		{5433, []string{": dropped by iptables-legacy chain ip filter OUTPUT rule 1"}},
	} {
		disconnect := connect(t, pair.Pod, "", fmt.Sprintf("10.9.9.9:%d", tc.port), 0)
		text := ""
		for lines.Scan() {
			text += lines.Text() + "\n"
			if strings.Contains(text, fmt.Sprintf("> 10.9.9.9:%d uid 0", tc.port)) &&
				(strings.Contains(text, "ip filter OUTPUT policy") ||
					strings.Contains(text, "dropped")) {
				break
			}
		}
		disconnect()
		for _, want := range tc.wants {
			if !strings.Contains(text, want) {
				t.Errorf("port %d: got %s\nwant %q", tc.port, text, want)
			}
		}
		if strings.Contains(text, "model") {
			t.Errorf("port %d: kernel and model differ, or were not compared: %s", tc.port, text)
		}
	}
	output := new(bytes.Buffer)
	s.stdout, s.stderr = output, output
	if code := run(s, append([]string{"check"}, parameters...)); code != 0 {
		t.Errorf("rules check during a trace: exit code %d, want 0: %s", code, output)
	}
	if code := end(); code != 0 {
		t.Errorf("exit code %d after an interrupt, want 0", code)
	}
}

// TestTraceNoticesChangedRules changes rules during a trace, including rules of iptables-legacy,
// whose changes the kernel does not report. The trace prints the rule that decided, and reports no
// difference.
func TestTraceNoticesChangedRules(t *testing.T) {
	for _, backend := range []string{"iptables-legacy", "iptables-nft"} {
		t.Run(backend, func(t *testing.T) {
			pair := netnstest.NewPair(t)
			drop := func(position, port string) {
				within(t, pair.Pod, backend, "-I", "OUTPUT", position, "-p", "tcp", "--dport", port,
					"-m", "comment", "--comment", "port "+port, "-j", "DROP")
			}
			drop("1", "5433")
			lines, end := startTrace(t, pair.Pod, "--out", "-v")
			for _, tc := range []struct{ position, port, rule string }{
				{"", "5433", "1"},
				{"1", "5434", "1"},
				{"", "5433", "2"},
				{"2", "5435", "2"},
			} {
				if tc.position != "" {
					drop(tc.position, tc.port)
				}
				disconnect := connect(t, pair.Pod, "", "10.9.9.9:"+tc.port, 0)
				text := ""
				for lines.Scan() {
					text += lines.Text() + "\n"
					if strings.Contains(text, "> 10.9.9.9:"+tc.port+" uid 0") &&
						(strings.Contains(lines.Text(), "# port ") || strings.Contains(text, "model")) {
						break
					}
				}
				disconnect()
				want := ": dropped by " + backend + " chain ip filter OUTPUT rule " + tc.rule
				if !strings.Contains(text, want) || !strings.Contains(text, "# port "+tc.port) ||
					strings.Contains(text, "model") {
					t.Errorf("port %s: got %s\nwant %q and # port %s, without a difference", tc.port,
						text, want, tc.port)
				}
			}
			if code := end(); code != 0 {
				t.Errorf("exit code %d after an interrupt, want 0", code)
			}
		})
	}
}
