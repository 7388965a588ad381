package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/compat"
	"github.com/sluice-mesh/sluice/compat/livetrace"
	"github.com/sluice-mesh/sluice/nft"
	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
	"github.com/sluice-mesh/sluice/nft/trace"
	"github.com/sluice-mesh/sluice/plugin/agent"
	"github.com/sluice-mesh/sluice/rules"
	params "github.com/sluice-mesh/sluice/rules/parameter"
	"github.com/sluice-mesh/sluice/rules/rulestest"
)

func TestCheckIgnoresARunningTrace(t *testing.T) {
	pair := netnstest.NewPair(t)
	path := fmt.Sprintf("/proc/self/fd/%d", pair.Pod.FD())
	output := new(bytes.Buffer)
	s := thisSystem()
	s.stdout, s.stderr = output, output
	if code := run(s, []string{"apply", "--netns", path, "-b", "*", "-i", "*"}); code != 0 {
		t.Fatalf("rules apply: exit code %d, want 0: %s", code, output)
	}
	_, end := startTrace(t, pair.Pod)
	if code := run(s, []string{"check", "--netns", path, "-b", "*", "-i", "*"}); code != 0 {
		t.Errorf("rules check during a trace: exit code %d, want 0: %s", code, output)
	}
	if code := end(); code != 0 {
		t.Errorf("exit code %d after an interrupt, want 0", code)
	}
}

// startTraceWith starts rules trace with arguments that name the namespace, and returns after its
// first message. done receives the exit code.
func startTraceWith(t *testing.T, args ...string) (stderr io.Reader, done <-chan int) {
	t.Helper()
	messages, errs := io.Pipe()
	s := thisSystem()
	s.stdout, s.stderr = io.Discard, errs
	code := make(chan int, 1)
	go func() {
		code <- run(s, append([]string{"trace"}, args...))
		_ = errs.Close()
	}()
	if _, err := io.ReadFull(messages, make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	return messages, code
}

// TestTraceEndsWithItsNamedNamespace names the namespace as ip-netns(8) does.
func TestTraceEndsWithItsNamedNamespace(t *testing.T) {
	ns := netnstest.New(t)
	name := fmt.Sprint("sluice-trace-test-", os.Getpid())
	file := filepath.Join(namedNamespaces, name)
	if err := os.MkdirAll(namedNamespaces, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	remove := func() {
		_ = unix.Unmount(file, unix.MNT_DETACH)
		_ = os.Remove(file)
	}
	t.Cleanup(remove)
	if err := ns.Do(func() error {
		return unix.Mount("/proc/thread-self/ns/net", file, "", unix.MS_BIND, "")
	}); err != nil {
		t.Fatal(err)
	}
	stderr, done := startTraceWith(t, "--netns", name)
	remove()
	text, err := io.ReadAll(stderr)
	if err != nil || !strings.Contains(string(text), "namespace "+name+" no longer exists") {
		t.Errorf("got %q, %v, want a message that the namespace no longer exists", text, err)
	}
	if code := <-done; code != 0 {
		t.Errorf("exit code %d, want 0", code)
	}
}

func TestTraceEndsWithItsProcess(t *testing.T) {
	ns := netnstest.New(t)
	child := exec.Command("sleep", "1000")
	if err := ns.Do(child.Start); err != nil {
		t.Fatal(err)
	}
	stderr, done := startTraceWith(t, "--pid", strconv.Itoa(child.Process.Pid))
	_ = child.Process.Kill()
	_ = child.Wait()
	text, err := io.ReadAll(stderr)
	if err != nil || !strings.Contains(string(text), "has ended") {
		t.Errorf("got %q, %v, want a message that the process has ended", text, err)
	}
	if code := <-done; code != 0 {
		t.Errorf("exit code %d, want 0", code)
	}
}

// TestKilledTraceLeavesNothing kills the command at random moments. The kernel removes the
// command's table, and the next command can trace immediately.
func TestKilledTraceLeavesNothing(t *testing.T) {
	ns := netnstest.New(t)
	traced := 0
	for range rulestest.Trials(200, os.Getenv) {
		cmd := traceCommand(t.Context(), ns)
		messages, err := cmd.StderrPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		if rand.IntN(2) == 0 {
			line, _ := bufio.NewReader(messages).ReadString('\n')
			if !strings.HasPrefix(line, "rules: tracing") {
				t.Fatalf("after a killed trace: got %q, want a new trace", line)
			}
			traced++
		} else {
			time.Sleep(time.Duration(rand.Int64N(int64(50 * time.Millisecond))))
		}
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait()
		rs, err := nft.ReadAll(ns)
		if err != nil || len(rs.Tables) > 0 {
			t.Fatalf("a killed trace leaves %v, error %v; want no rules", rs, err)
		}
	}
	if traced == 0 {
		t.Error("every command was killed before its trace started")
	}
}

// TestTraceOfAPod traces the namespace that the node agent reports. The trace ends when the
// namespace is removed or standard input ends.
func TestTraceOfAPod(t *testing.T) {
	for _, c := range []struct {
		name string
		end  func(path string, stdin io.Closer) error
		want string
	}{
		{"the pod ends", func(path string, _ io.Closer) error {
			return os.Remove(path)
		}, "pod default/web has ended"},
		{"standard input ends", func(_ string, stdin io.Closer) error { return stdin.Close() }, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			ns := netnstest.New(t)
			path := filepath.Join(t.TempDir(), "netns")
			if err := os.Symlink(fmt.Sprintf("/proc/self/fd/%d", ns.FD()), path); err != nil {
				t.Fatal(err)
			}
			located := meshPod(t, ns)
			located.NetNS = path
			dir := startAgentWithPods(t, map[string]agent.Location{"web": located})
			messages, errs := io.Pipe()
			stdin, input := io.Pipe()
			s := thisSystem()
			s.stdin, s.stdout, s.stderr = stdin, io.Discard, errs
			done := make(chan int, 1)
			go func() {
				done <- run(s, []string{
					"trace", "--pod", "default/web", "--cni-agent-run-dir", dir, "--until-eof",
				})
				_ = errs.Close()
			}()
			if _, err := io.ReadFull(messages, make([]byte, 1)); err != nil {
				t.Fatal(err)
			}
			if err := c.end(path, input); err != nil {
				t.Fatal(err)
			}
			text, err := io.ReadAll(messages)
			if err != nil || !strings.Contains(string(text), c.want) {
				t.Errorf("got %q, %v, want %q", text, err, c.want)
			}
			if code := <-done; code != 0 {
				t.Errorf("exit code %d, want 0", code)
			}
			_ = input.Close()
		})
	}
}

// traceCommand returns the command rules trace for the namespace, in a process of its own. See
// TestMain.
func traceCommand(ctx context.Context, ns *netns.NS) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "/proc/self/exe", "trace", "--netns",
		fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), ns.FD()))
	cmd.Args[0] = "rules"
	return cmd
}

// After a hang-up of its terminal, a trace ends with success, as after Ctrl-C. The kernel's default
// action would end the process before it restores net.netfilter.nf_log.
func TestHangUpEndsATraceInOrder(t *testing.T) {
	ns := netnstest.New(t)
	cmd := traceCommand(t.Context(), ns)
	// If the test was started with nohup, the command would inherit that SIGHUP is ignored.
	handled := make(chan os.Signal, 1)
	signal.Notify(handled, unix.SIGHUP)
	defer signal.Stop(handled)
	messages, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	reader := bufio.NewReader(messages)
	if line, err := reader.ReadString('\n'); !strings.HasPrefix(line, "rules: tracing") {
		t.Errorf("got %q, error %v, want a trace", line, err)
	}
	if err := cmd.Process.Signal(unix.SIGHUP); err != nil {
		t.Fatal(err)
	}
	_, _ = io.Copy(io.Discard, reader)
	if err := cmd.Wait(); err != nil {
		t.Errorf("the trace ended with %v, want success", err)
	}
}

// TestSecondSignalEndsATraceThatCannotPrint lets the trace print its summary into a full pipe.
func TestSecondSignalEndsATraceThatCannotPrint(t *testing.T) {
	ns := netnstest.New(t)
	reader, writer, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = reader.Close() }()
	size, err := unix.FcntlInt(writer.Fd(), unix.F_GETPIPE_SZ, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := writer.Write(make([]byte, size)); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := traceCommand(ctx, ns)
	cmd.Stdout = writer
	messages, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_ = writer.Close()
	line, err := bufio.NewReader(messages).ReadString('\n')
	if !strings.HasPrefix(line, "rules: tracing") {
		t.Errorf("got %q, error %v, want a trace", line, err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	for isRunning := true; isRunning; {
		select {
		case err = <-ended:
			isRunning = false
		case <-time.After(time.Millisecond):
			_ = cmd.Process.Signal(unix.SIGINT)
		}
	}
	if status := cmd.ProcessState.Sys().(syscall.WaitStatus); status.Signal() != unix.SIGINT {
		t.Errorf("the trace ended with %v, want an end by the signal", err)
	}
}

// After the end of the context, no packet is printed.
func TestTracePrintsNothingAfterItsEnd(t *testing.T) {
	ns := netnstest.New(t)
	namespace, err := livetrace.OpenNamespace(ns, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer namespace.Close()
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	for _, row := range []struct {
		name string
		ctx  context.Context
		want int
	}{{"a running trace", t.Context(), 2}, {"a canceled trace", canceled, 0}} {
		t.Run(row.name, func(t *testing.T) {
			s, _ := testSystem()
			tracer := liveTracer{
				s: s, ns: ns, p: defaultParameters(params.Names{}), namespace: namespace,
				senders: map[livetrace.Connection]livetrace.Process{},
			}
			now := time.Now()
			var batch trace.Batch
			for id := range uint32(2) {
				batch.Events = append(batch.Events, trace.Event{
					ID: id + 1, Kind: trace.Policy, Table: "x", Chain: "in", Verdict: trace.Accept, In: 1,
					Header: &trace.Header{
						Protocol: rules.TCP, Source: netip.MustParseAddrPort("10.0.0.1:40000"),
						Destination: netip.AddrPortFrom(netip.MustParseAddr("10.0.0.2"), uint16(id)),
					},
				})
			}
			// The packets are printed idleTime after their last event.
			err := errors.Join(tracer.addBatch(row.ctx, now, batch),
				tracer.addBatch(row.ctx, now.Add(2*idleTime), trace.Batch{}))
			if err != nil || tracer.summary.Packets != row.want {
				t.Errorf("%d packets are printed, error %v, want %d", tracer.summary.Packets, err,
					row.want)
			}
		})
	}
}

// The end of a trace can fail, for example if its namespace cannot be entered.
func TestFailedEndOfATraceIsReported(t *testing.T) {
	netnstest.RequireRoot(t)
	ns, err := netns.New()
	if err != nil {
		t.Fatal(err)
	}
	marks, err := compat.MarkTraces(ns, trace.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := ns.Close(); err != nil {
		t.Fatal(err)
	}
	s, errs := testSystem()
	tracer := liveTracer{s: s, source: traceSource{marks: marks, poll: time.NewTicker(time.Hour)}}
	tracer.closeSource()
	if want := "warning: ending the trace failed; "; !strings.Contains(errs.String(), want) {
		t.Errorf("got %q, want %q", errs, want)
	}
}

func TestSummaryIsPrintedAfterAnError(t *testing.T) {
	session, err := trace.Open(netnstest.New(t), trace.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := session.Close(); err != nil {
		t.Fatal(err)
	}
	s, _ := testSystem()
	stdout := new(bytes.Buffer)
	s.stdout = stdout
	tracer := liveTracer{
		s: s, p: defaultParameters(params.Names{}), source: traceSource{session: session},
	}
	err = tracer.run(t.Context())
	want := "0 packets, 0 lost events"
	if err == nil || !strings.HasPrefix(stdout.String(), want) {
		t.Errorf("output %q, error %v; want %q and an error of the session", stdout, err, want)
	}
}

// TestSendersOfPrintedPacketsAreRemoved covers a packet whose destination NAT has changed: each of
// its events of iptables-legacy contains the owner of the sender.
func TestSendersOfPrintedPacketsAreRemoved(t *testing.T) {
	ns := netnstest.New(t)
	namespace, err := livetrace.OpenNamespace(ns, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer namespace.Close()
	s, _ := testSystem()
	tracer := liveTracer{
		s: s, ns: ns, p: defaultParameters(params.Names{}), namespace: namespace,
		senders: map[livetrace.Connection]livetrace.Process{},
	}
	var batch trace.Batch
	for i, destination := range []string{"10.0.0.2:80", "127.0.0.1:15001"} {
		batch.Events = append(batch.Events, trace.Event{
			Kind: trace.Rule, Table: []string{"raw", "filter"}[i], Chain: "OUTPUT", Number: 1, Out: 1,
			Owner: &rules.Owner{UID: 1000, GID: 1000}, Hook: rules.Output,
			Header: &trace.Header{
				Protocol: rules.TCP, Source: netip.MustParseAddrPort("10.0.0.1:40000"),
				Destination: netip.MustParseAddrPort(destination),
			},
		})
	}
	now := time.Now()
	if err := tracer.addBatch(t.Context(), now, batch); err != nil || len(tracer.senders) == 0 {
		t.Fatalf("%d senders, error %v, want the sender", len(tracer.senders), err)
	}
	err = tracer.addBatch(t.Context(), now.Add(2*idleTime), trace.Batch{})
	if err != nil || tracer.summary.Packets != 1 || len(tracer.senders) > 0 {
		t.Errorf("%d packets are printed, error %v, then the senders are %v; want 1 and none",
			tracer.summary.Packets, err, tracer.senders)
	}
}

// TestTheSearchForSendersEndsWithTheTrace covers a sender whose process would be found.
func TestTheSearchForSendersEndsWithTheTrace(t *testing.T) {
	ns := netnstest.New(t)
	namespace, err := livetrace.OpenNamespace(ns, "/proc")
	if err != nil {
		t.Fatal(err)
	}
	defer namespace.Close()
	var sender net.PacketConn
	if err := ns.Do(func() (err error) {
		sender, err = net.ListenPacket("udp4", "127.0.0.1:0")
		return err
	}); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = sender.Close() }()
	header := trace.Header{
		Protocol: rules.UDP, Source: sender.LocalAddr().(*net.UDPAddr).AddrPort(),
		Destination: netip.MustParseAddrPort("127.0.0.1:53"),
	}
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	for _, row := range []struct {
		name string
		ctx  context.Context
		pid  int
	}{{"a running trace", t.Context(), os.Getpid()}, {"a canceled trace", canceled, 0}} {
		tracer := liveTracer{
			namespace: namespace, senders: map[livetrace.Connection]livetrace.Process{},
		}
		tracer.findSenders(row.ctx, []trace.Event{{Header: &header}})
		if got, found := tracer.senders[connectionOf(&header)]; !found || got.PID != row.pid {
			t.Errorf("%s: sender %+v, found %t, want process %d", row.name, got, found, row.pid)
		}
	}
}

// TestObjectsOfATraceNameThePod checks the objects of a packet and of the summary. kubectl sluice
// prints the objects of several pods in one output.
func TestObjectsOfATraceNameThePod(t *testing.T) {
	ns := netnstest.New(t)
	namespace, err := livetrace.OpenNamespace(ns, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer namespace.Close()
	s, _ := testSystem()
	var out strings.Builder
	s.stdout, s.json = &out, true
	p := defaultParameters(params.Names{})
	p.pod = podName{"default", "web"}
	tracer := liveTracer{
		s: s, ns: ns, p: p, namespace: namespace,
		senders: map[livetrace.Connection]livetrace.Process{},
	}
	now := time.Now()
	err = errors.Join(
		tracer.addBatch(t.Context(), now, trace.Batch{Events: []trace.Event{{
			ID: 1, Kind: trace.Policy, Table: "x", Chain: "in", Verdict: trace.Accept, In: 1,
			Header: &trace.Header{
				Protocol: rules.TCP, Source: netip.MustParseAddrPort("10.0.0.1:40000"),
				Destination: netip.MustParseAddrPort("10.0.0.2:80"),
			},
		}}}),
		tracer.addBatch(t.Context(), now.Add(2*idleTime), trace.Batch{}),
		tracer.printSummary())
	if n := strings.Count(out.String(), `"pod":"default/web"`); err != nil || n != 2 {
		t.Errorf("error %v, %d objects name the pod, want 2: %s", err, n, &out)
	}
}
