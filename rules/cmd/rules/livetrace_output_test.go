package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/compat/livetrace"
	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
	"github.com/sluice-mesh/sluice/nft/trace"
	"github.com/sluice-mesh/sluice/rules"
	params "github.com/sluice-mesh/sluice/rules/parameter"
)

// TestTraceReportsLostEvents adds batches of a socket whose buffer overflowed.
func TestTraceReportsLostEvents(t *testing.T) {
	stderr, stdout := new(bytes.Buffer), new(bytes.Buffer)
	s := thisSystem()
	s.stdout, s.stderr = stdout, stderr
	tracer := &liveTracer{s: s, p: defaultParameters(params.Names{})}
	for range 2 {
		if err := tracer.addBatch(t.Context(), time.Now(), trace.Batch{Lost: 7}); err != nil {
			t.Fatal(err)
		}
	}
	if err := tracer.printSummary(); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(stderr.String(), "7 events are lost: the buffer of the kernel was full") ||
		!strings.Contains(stdout.String(), "0 packets, 14 lost events") {
		t.Errorf("stderr %q, stdout %q; want a warning and 14 lost events", stderr, stdout)
	}
}

func TestTraceWritesOneObjectALineAndEndsByCount(t *testing.T) {
	pair := netnstest.NewPair(t)
	// The chain enables conntrack, whose events contain the answer.
	within(t, pair.Pod, "nft", "table ip tracked { chain nat { type nat hook output priority -100; }; }")
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
		summary.Packets != 1 || len(summary.Uncaptured) != 1 ||
		summary.Uncaptured[0].To != packet.To {
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
		output := new(bytes.Buffer)
		s := thisSystem()
		s.stdout, s.stderr = output, output
		if code := run(s, append([]string{"trace"}, tc.args...)); code != exitBadInput ||
			!strings.Contains(output.String(), tc.want) {
			t.Errorf("%q: exit code %d: %s\nwant %d with %q", tc.args, code, output, exitBadInput,
				tc.want)
		}
	}
}

func TestTraceWritesAFileThatReproducesADifference(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	output := new(bytes.Buffer)
	s := thisSystem()
	s.stdout, s.stderr = output, output
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
	if len(files) != 1 || !strings.Contains(output.String(), "other rule: please report, with "+
		files[0]) {
		t.Fatalf("files %q, output %s; want one file that the output names", files, output)
	}
	text, err := os.ReadFile(files[0])
	if err != nil || !strings.Contains(string(text), "# rules explain --live '"+packet.String()+
		"'") || !strings.Contains(string(text), "table inet x") {
		t.Errorf("error %v, want the packet and the ruleset in %s", err, text)
	}
}

// In the container of a node agent, no file can be created.
func TestTracePrintsTheReproducerWithoutAFile(t *testing.T) {
	t.Setenv("TMPDIR", filepath.Join(t.TempDir(), "missing"))
	packet, err := rules.ParsePacket("out tcp 10.0.0.1:4000 > 10.0.0.2:80 uid 0")
	if err != nil {
		t.Fatal(err)
	}
	o := livetrace.Observation{
		Packet: packet, Outcome: livetrace.NotCaptured, Message: "not captured",
		Differences: []string{"other rule"},
	}
	for _, asJSON := range []bool{false, true} {
		s, errs := testSystem()
		output := new(bytes.Buffer)
		s.stdout, s.json = output, asJSON
		tracer := &liveTracer{
			s: s, p: defaultParameters(params.Names{}),
			ruleset: rules.Ruleset{Tables: []rules.Table{{Name: "x"}}},
		}
		if err := tracer.print(o, livetrace.Process{}, false); err != nil {
			t.Fatal(err)
		}
		text := output.String()
		if asJSON {
			var line tracedPacket
			if err := json.Unmarshal(output.Bytes(), &line); err != nil {
				t.Fatal(err)
			}
			text = line.ReproducerText
		}
		want := "# rules explain --live '" + packet.String() + "'\n"
		if !strings.Contains(text, want) || !strings.Contains(text, "table inet x") || errs.Len() > 0 {
			t.Errorf("JSON %v: got %q, and on stderr %q; want the packet and the ruleset", asJSON, text, errs)
		}
	}
}

// TestNamesOfSendersArePrintable checks that a process in the namespace, which chooses its name,
// cannot control the terminal.
func TestNamesOfSendersArePrintable(t *testing.T) {
	packet, err := rules.ParsePacket("out tcp 10.0.0.1:4000 > 10.0.0.2:80 uid 0")
	if err != nil {
		t.Fatal(err)
	}
	o := livetrace.Observation{
		Packet: packet, Outcome: livetrace.NotCaptured, Message: "not captured",
	}
	output := new(bytes.Buffer)
	s := thisSystem()
	s.stdout, s.stderr = output, output
	tracer := &liveTracer{s: s, p: defaultParameters(params.Names{})}
	if err := tracer.print(o, livetrace.Process{PID: 7, Name: "a\x1b[2Jb"}, true); err != nil {
		t.Fatal(err)
	}
	if err := tracer.printSummary(); err != nil {
		t.Fatal(err)
	}
	if got := output.String(); strings.Contains(got, "\x1b") || !strings.Contains(got, "a�[2Jb") {
		t.Errorf("output %q, want the name without the escape character", got)
	}
}

// A retransmitted SYN, which does not traverse chains of type nat, is not printed as a new
// connection. The sender of a datagram is found although its socket is not connected.
func TestTracePrintsARetransmittedConnectionOnce(t *testing.T) {
	pair := netnstest.NewPair(t)
	within(t, pair.Neighbor, "nft",
		"table ip silent { chain c { type filter hook prerouting priority 0; tcp dport 5432 drop; }; }")
	// For a chain of another type than nat, the kernel reports events for each packet.
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
		t.Errorf("got %q, want one line for port 5432 and one for port 9999, both of user 0", got)
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
	if got := s.withUncaptured().String(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// The summary reports packets that it does not count by sender and destination.
func TestSummaryReportsUncountedSenders(t *testing.T) {
	var s traceSummary
	const others = 3
	for i := range maxUncaptured + others {
		s.add(livetrace.Observation{
			Outcome: livetrace.NotCaptured, Message: "not captured",
			Packet: rules.Packet{
				Hook: rules.Output, Destination: netip.AddrPortFrom(netip.IPv4Unspecified(), uint16(i)),
			},
		}, livetrace.Process{}, true)
	}
	const want = "not counted by sender and destination, because there are more than 10000: " +
		"3 packets not captured\n"
	if text := s.withUncaptured().String(); !strings.HasSuffix(text, want) {
		t.Errorf("got %q, want %q at the end", text, want)
	}
}
