package agent_test

import (
	"bytes"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"unicode"

	"pgregory.net/rapid"

	"github.com/sluice-mesh/sluice/plugin/agent"
	"github.com/sluice-mesh/sluice/plugin/agent/agenttest"
)

func TestFramesAreReadAsTheyWereWritten(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		contents := rapid.SliceOf(rapid.SliceOfN(rapid.Byte(), 0, 100_000)).Draw(t, "contents")
		var stream []byte
		for _, content := range contents {
			stream = agent.AppendFrame(stream, content)
		}
		r := bytes.NewReader(stream)
		for _, content := range contents {
			if got, err := agent.ReadFrame(r, len(content)); err != nil ||
				!bytes.Equal(got, content) {
				t.Fatalf("content of %d bytes, error %v, want the %d bytes written", len(got), err,
					len(content))
			}
		}
		if _, err := agent.ReadFrame(r, 0); !errors.Is(err, io.EOF) {
			t.Fatalf("error %v at the end of the stream, want io.EOF", err)
		}
	})
}

// TestAnnouncedLengthIsNotTrusted checks that a frame that announces 8 MiB but has one byte does
// not allocate 8 MiB.
func TestAnnouncedLengthIsNotTrusted(t *testing.T) {
	incomplete := []byte{0, 0x7f, 0xff, 0xff, 'x'}
	n := testing.Benchmark(func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			_, err := agent.ReadFrame(bytes.NewReader(incomplete), agent.MaxBody)
			if !errors.Is(err, io.ErrUnexpectedEOF) {
				b.Fatalf("error %v, want io.ErrUnexpectedEOF", err)
			}
		}
	}).AllocedBytesPerOp()
	if n > 64<<10 {
		t.Errorf("%d bytes allocated, want at most 64 KiB", n)
	}
}

// TestTruncatedFramesAreUnexpectedEOF checks that the error is io.ErrUnexpectedEOF if a connection
// ends within a frame, and io.EOF if it ends without one: such a connection only tests whether an
// agent listens.
func TestTruncatedFramesAreUnexpectedEOF(t *testing.T) {
	frame := agent.AppendFrame(nil, make([]byte, 50<<10))
	for length, want := range map[int]error{
		0: io.EOF, 2: io.ErrUnexpectedEOF, 4: io.ErrUnexpectedEOF, 40 << 10: io.ErrUnexpectedEOF,
	} {
		read := make(chan error, 1)
		conn, err := net.Dial("unix", agenttest.Listen(t, func(c *net.UnixConn) {
			_, err := agent.ReadFrame(agent.NewReceiver(c), agent.MaxRequest)
			read <- err
		}))
		if err == nil {
			_, err = conn.Write(frame[:length])
		}
		if err == nil {
			err = conn.Close()
		}
		if err != nil {
			t.Fatal(err)
		}
		err = <-read
		if !errors.Is(err, want) || errors.Is(err, io.EOF) != errors.Is(want, io.EOF) {
			t.Errorf("after %d bytes: error %v, want %v", length, err, want)
		}
	}
}

// FuzzReadFrame reads arbitrary streams: the stream begins with the frame of the returned content,
// and the content is not longer than allowed.
func FuzzReadFrame(f *testing.F) {
	f.Add(agenttest.Frames(`{"version":1}`, locationJSON), 100)
	f.Add([]byte{0xff, 0xff, 0xff, 0xff}, 1<<20)
	f.Add([]byte{0, 0, 0}, 0)
	f.Fuzz(func(t *testing.T, stream []byte, limit int) {
		limit = max(0, min(limit, agent.MaxBody))
		content, err := agent.ReadFrame(bytes.NewReader(stream), limit)
		if err != nil {
			return
		}
		if len(content) > limit || !bytes.HasPrefix(stream, agent.AppendFrame(nil, content)) {
			t.Errorf("content %q of stream %q, want the first frame's, and at most %d bytes", content,
				stream, limit)
		}
	})
}

// FuzzLocation sends arbitrary answers to a request for a location: the result is a valid location
// of the requested pod, or an error without control characters other than line breaks.
func FuzzLocation(f *testing.F) {
	f.Add(agenttest.Frames(`{"version":1}`, locationJSON))
	f.Add(agenttest.Frames(`{"version":1,"kind":"not-found","error":"none\n"}`))
	f.Add(agenttest.Frames(`{"version":1}`,
		`{"namespace":"default","name":"web","decision":"redirect","redirect":{}}`))
	var answer []byte
	c := agent.Caller{Socket: agenttest.Listen(f, func(c *net.UnixConn) {
		_, _ = agent.ReadFrame(c, agent.MaxRequest)
		_, _ = c.Write(answer)
	})}
	f.Fuzz(func(t *testing.T, sent []byte) {
		answer = sent
		found, err := c.Locate(requestContext(t), "default", "web")
		if err == nil {
			if found.Namespace != "default" || found.Name != "web" || found.Validate() != nil {
				t.Errorf("location %+v, want a valid one of the requested pod", found)
			}
			return
		}
		if strings.ContainsFunc(err.Error(), func(c rune) bool {
			return !unicode.IsPrint(c) && c != '\n'
		}) {
			t.Errorf("error %q, want no control characters except line breaks", err)
		}
	})
}

// FuzzRequest checks arbitrary versions and verbs: a request is supported if both are known.
func FuzzRequest(f *testing.F) {
	f.Add(1, "pod")
	f.Add(2, "pod")
	f.Add(1, "delete")
	f.Fuzz(func(t *testing.T, version int, verb string) {
		r := agent.Request{Version: version, Verb: agent.Verb(verb)}
		known := r.Verb.IsQuery() || r.Verb == agent.NotifyAdd || r.Verb == agent.NotifyLog ||
			r.Verb == agent.NotifyPod
		if err := r.CheckSupported(); (err == nil) != (version == agent.Version && known) {
			t.Errorf("version %d, verb %q: error %v, want an error only if either is unknown", version, verb,
				err)
		}
	})
}
