package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/compat/livetrace"
	"github.com/sluice-mesh/sluice/nft"
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

// TestTraceReportsLostEvents adds batches of a socket whose buffer overflowed.
func TestTraceReportsLostEvents(t *testing.T) {
	stderr, printed := new(bytes.Buffer), new(bytes.Buffer)
	s := thisSystem()
	s.stdout, s.stderr = printed, stderr
	tracer := &liveTracer{s: s, p: defaultParameters(params.Names{})}
	for range 2 {
		if err := tracer.addBatch(time.Now(), trace.Batch{Lost: 7}); err != nil {
			t.Fatal(err)
		}
	}
	if err := tracer.printSummary(); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(stderr.String(), "7 events are lost: the buffer of the kernel was full") ||
		!strings.Contains(printed.String(), "0 packets, 14 lost events") {
		t.Errorf("stderr %q, stdout %q; want a warning and 14 lost events", stderr, printed)
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
	program := filepath.Join(t.TempDir(), "rules")
	if out, err := exec.Command("go", "build", "-o", program, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	traced := 0
	for range rulestest.Trials(200, os.Getenv) {
		fd, err := unix.Dup(ns.FD())
		if err != nil {
			t.Fatal(err)
		}
		file := os.NewFile(uintptr(fd), "netns")
		cmd := exec.Command(program, "trace", "--netns", "/proc/self/fd/3")
		cmd.ExtraFiles = []*os.File{file}
		messages, err := cmd.StderrPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		_ = file.Close()
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

func TestTraceWritesOneObjectALineAndEndsByCount(t *testing.T) {
	pair := netnstest.NewPair(t)
	within(t, pair.Pod, "nft", "table ip seen { "+
		"chain out { type filter hook output priority -300; counter; }; "+
		"chain nat { type nat hook output priority -100; }; }")
	out, in := io.Pipe()
	s := thisSystem()
	s.stdout, s.stderr = in, io.Discard
	done := make(chan int, 1)
	go func() {
		path := fmt.Sprintf("/proc/self/fd/%d", pair.Pod.FD())
		done <- run(s, []string{
			"trace", "--netns", path, "--count", "1", "--to", "10.9.9.9:80", "-o", "json",
		})
		_ = in.Close()
	}()
	lines := json.NewDecoder(out)
	read := make(chan error, 1)
	type head struct {
		Version int
		Kind    string
	}
	var packet struct {
		head
		tracedPacket
	}
	go func() { read <- lines.Decode(&packet) }()
	for waiting := true; waiting; { // a connection before the session is open is not traced
		err := pair.Pod.Do(func() error {
			c, err := net.Dial("tcp4", "10.9.9.9:80")
			if err == nil {
				_ = c.Close()
			}
			return err
		})
		if err != nil && !errors.Is(err, unix.ECONNREFUSED) {
			t.Fatal(err)
		}
		select {
		case err := <-read:
			if err != nil {
				t.Fatal(err)
			}
			waiting = false
		default:
		}
	}
	if packet.Version != 1 || packet.Kind != "TracedPacket" || packet.To != "10.9.9.9:80" ||
		packet.Direction != "out" || packet.Outcome != "not-captured" {
		t.Errorf("got %+v, want an uncaptured packet to 10.9.9.9:80", packet)
	}
	var answer struct {
		head
		tracedAnswer
	}
	if err := lines.Decode(&answer); err != nil || answer.Kind != "TracedAnswer" ||
		answer.From != packet.From || answer.To != packet.To || answer.Protocol != "tcp" ||
		answer.Answer != "refused" || answer.By != packet.To {
		t.Errorf("got %+v, %v, want a refused connection", answer, err)
	}
	var summary struct {
		head
		traceSummary
	}
	if err := lines.Decode(&summary); err != nil || summary.Kind != "TraceSummary" ||
		summary.Packets != 1 || len(summary.Talkers) != 1 || summary.Talkers[0].To != packet.To {
		t.Errorf("got %+v, %v, want the summary of one packet", summary, err)
	}
	if code := <-done; code != 0 {
		t.Errorf("exit code %d, want 0", code)
	}
}

func TestTraceNamesBadFilters(t *testing.T) {
	for _, tc := range []struct {
		args []string
		want string
	}{
		{[]string{"--to", "web"}, `--to: "web" is not an address, such as 10.96.0.1`},
		{[]string{"--port", "http"}, `"http"`},
		{[]string{"--from-uid", "root"}, `"root" is not the number of a user (0 to 4294967295)`},
		{[]string{"--in", "--out"}, "--in and --out: give one of them"},
		{[]string{"--in", "--from-uid", "1"}, "--from-uid selects outgoing packets"},
		{[]string{"--from", "10.0.0.1", "--to", "fd00::1"}, "different families"},
		{[]string{"--for", "soon"}, `"soon" is not a duration above 0, such as 30s`},
		{[]string{"--for", "0s"}, `"0s" is not a duration above 0`},
		{[]string{"--count", "0"}, `"0" is not a number of packets (1 or more)`},
		{[]string{"10.0.0.1"}, `unexpected argument "10.0.0.1"`},
	} {
		stderr := new(bytes.Buffer)
		s := thisSystem()
		s.stdout, s.stderr = stderr, stderr
		if code := run(s, append([]string{"trace"}, tc.args...)); code != exitBadInput ||
			!strings.Contains(stderr.String(), tc.want) {
			t.Errorf("%q: exit code %d: %s\nwant %q", tc.args, code, stderr, tc.want)
		}
	}
}

func TestTraceWritesAFileThatReproducesADifference(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	stderr := new(bytes.Buffer)
	s := thisSystem()
	s.stdout, s.stderr = stderr, stderr
	tracer := &liveTracer{
		s: s, p: defaultParameters(params.Names{}),
		ruleset: rules.Ruleset{Tables: []rules.Table{{Name: "x"}}},
	}
	packet, err := rules.ParsePacket("out tcp 10.0.0.1:4000 > 10.0.0.2:80 uid 0")
	if err != nil {
		t.Fatal(err)
	}
	o := livetrace.Observation{
		Packet: packet, Outcome: livetrace.NotCaptured, Message: "not captured",
		Differences: []string{"other rule"},
	}
	if err := tracer.print(o, livetrace.Process{}, false); err != nil {
		t.Fatal(err)
	}
	files, _ := filepath.Glob(filepath.Join(os.Getenv("TMPDIR"), "rules-trace-*.nft"))
	if len(files) != 1 || !strings.Contains(stderr.String(), "other rule: please report, with "+
		files[0]) {
		t.Fatalf("files %q, output %s; want one file that the output names", files, stderr)
	}
	text, err := os.ReadFile(files[0])
	if err != nil || !strings.Contains(string(text), "# rules explain --live '"+packet.String()+
		"'") || !strings.Contains(string(text), "table inet x") {
		t.Errorf("error %v, want the packet and the ruleset in %s", err, text)
	}
}

// A retransmitted SYN, which does not traverse chains of type nat, is not printed as a new
// connection. The sender of a datagram is found although its socket is not connected.
func TestTracePrintsARetransmittedConnectionOnce(t *testing.T) {
	pair := netnstest.NewPair(t)
	within(t, pair.Neighbor, "nft",
		"table ip silent { chain c { type filter hook prerouting priority 0; tcp dport 5432 drop; }; }")
	// The kernel reports events of a chain of another type than nat for each packet.
	within(t, pair.Pod, "nft",
		"table ip other { chain c { type filter hook output priority 0; }; }")
	s := thisSystem()
	s.stdout, s.stderr = io.Discard, os.Stderr
	path := fmt.Sprintf("/proc/self/fd/%d", pair.Pod.FD())
	if code := run(s, []string{
		"apply", "--netns", path, "-b", "*", "-i", "*", "--istio-local-outbound-ports-exclude",
		"5432",
	}); code != 0 {
		t.Fatalf("rules apply: exit code %d, want 0", code)
	}
	lines, _ := startTrace(t, pair.Pod, "--out", "--count", "2")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() {
		_ = pair.Pod.Do(func() error {
			_, err := (&net.Dialer{}).DialContext(ctx, "tcp4", "10.9.9.9:5432")
			return err
		})
	}()
	var socket net.PacketConn
	err := pair.Pod.Do(func() (err error) {
		for {
			snmp, err := os.ReadFile("/proc/thread-self/net/snmp")
			if err != nil {
				return err
			}
			// The kernel increments the counter before it retransmits a segment. Once the counter
			// is 2, the first retransmitted segment has been sent.
			if retransmittedSegments(string(snmp)) > 1 {
				break
			}
			time.Sleep(10 * time.Millisecond)
		}
		if socket, err = net.ListenPacket("udp4", ":0"); err != nil {
			return err
		}
		_, err = socket.WriteTo([]byte("x"), &net.UDPAddr{IP: net.IPv4(10, 9, 9, 9), Port: 9999})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = socket.Close() }()
	var got []string
	for lines.Scan() {
		if strings.Contains(lines.Text(), " out ") {
			got = append(got, lines.Text())
		}
	}
	if len(got) != 2 || !strings.Contains(got[0], "> 10.9.9.9:5432 uid 0") ||
		!strings.Contains(got[1], "> 10.9.9.9:9999 uid 0") {
		t.Errorf("got %q, want a connection and a datagram of user 0", got)
	}
}

// retransmittedSegments returns the number of retransmitted TCP segments from the content of
// /proc/net/snmp.
func retransmittedSegments(snmp string) int {
	var names []string
	for line := range strings.Lines(snmp) {
		words := strings.Fields(line)
		switch {
		case words[0] != "Tcp:":
		case names == nil:
			names = words
		default:
			n, _ := strconv.Atoi(words[slices.Index(names, "RetransSegs")])
			return n
		}
	}
	return 0
}

func TestTraceSummaryListsUncapturedTrafficFirst(t *testing.T) {
	observation := func(outcome livetrace.Outcome, message, packet string) livetrace.Observation {
		p, err := rules.ParsePacket(packet)
		if err != nil {
			t.Fatal(err)
		}
		return livetrace.Observation{Outcome: outcome, Message: message, Packet: p}
	}
	var s traceSummary
	curl := livetrace.Process{Name: "curl", Owner: rules.Owner{UID: 1000}}
	captured := observation(livetrace.Captured, "captured: outbound", "out tcp 10.0.0.1:1 > 10.0.0.2:80")
	database := observation(livetrace.NotCaptured, "not captured: excluded port 5432",
		"out tcp 10.0.0.1:1 > 10.0.0.2:5432")
	inbound := observation(livetrace.NotCaptured, "not captured: no rule captures it",
		"in tcp 10.0.0.9:1 > 10.0.0.1:22")
	for range 3 {
		s.add(captured, curl, true)
	}
	s.add(database, livetrace.Process{}, false)
	s.add(database, curl, true)
	s.add(database, curl, true)
	s.add(inbound, livetrace.Process{}, false)
	s.Unanswered = 1
	want := `7 packets, 0 lost events, 0 differences from the model
1 connection without an answer at the end
      3  not captured: excluded port 5432
             2  uid 1000 curl > 10.0.0.2:5432
             1  uid unknown > 10.0.0.2:5432
      1  not captured: no rule captures it
             1  10.0.0.9 > 10.0.0.1:22
      3  captured: outbound
`
	if got := s.withTalkers().String(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}
