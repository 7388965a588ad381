package agent_test

import (
	"bytes"
	"errors"
	"io"
	"net"
	"testing"
	"unicode"

	"pgregory.net/rapid"

	"github.com/sluice-mesh/sluice/plugin/agent"
	"github.com/sluice-mesh/sluice/plugin/source"
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
			if got, err := agent.ReadFrame(r, len(content)); err != nil || !bytes.Equal(got, content) {
				t.Fatalf("%d bytes, want %d: %v", len(got), len(content), err)
			}
		}
		if _, err := agent.ReadFrame(r, 0); !errors.Is(err, io.EOF) {
			t.Fatalf("at the end: %v", err)
		}
	})
}

// What somebody claims to send takes no memory.
func TestALengthIsNotBelieved(t *testing.T) {
	claim := []byte{0, 0x7f, 0xff, 0xff, 'x'}
	n := testing.Benchmark(func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := agent.ReadFrame(bytes.NewReader(claim), agent.MaxBody); !errors.Is(err, io.ErrUnexpectedEOF) {
				b.Fatal(err)
			}
		}
	}).AllocedBytesPerOp()
	if n > 64<<10 {
		t.Errorf("%d bytes", n)
	}
}

// FuzzReadFrame reads any stream: a frame is what stands there, and no longer than allowed.
func FuzzReadFrame(f *testing.F) {
	f.Add(frames(`{"version":1}`, webPod), 100)
	f.Add([]byte{0xff, 0xff, 0xff, 0xff}, 1<<20)
	f.Add([]byte{0, 0, 0}, 0)
	f.Fuzz(func(t *testing.T, stream []byte, longest int) {
		longest = max(0, min(longest, agent.MaxBody))
		frame, err := agent.ReadFrame(bytes.NewReader(stream), longest)
		if err != nil {
			return
		}
		if len(frame) > longest || !bytes.HasPrefix(stream, agent.AppendFrame(nil, frame)) {
			t.Errorf("%q of %q", frame, stream)
		}
	})
}

// FuzzAnswer answers a question by anything: there is the pod that was asked for, or an error on one line with a known kind.
func FuzzAnswer(f *testing.F) {
	f.Add(frames(`{"version":1}`, webPod))
	f.Add(frames(`{"version":1,"kind":"not-found","error":"none"}`))
	f.Add(frames(`{"version":1,"error":"\n"}`))
	f.Add(frames(`{"version":1}`, `{"metadata":null}`))
	var answer []byte
	c := agent.New(agent.Options{Socket: listen(f, func(c *net.UnixConn) {
		_, _ = agent.ReadFrame(c, agent.MaxRequest)
		_, _ = c.Write(answer)
	})})
	f.Fuzz(func(t *testing.T, sent []byte) {
		answer = sent
		pod, err := c.Pod(t.Context(), web)
		if err == nil {
			if pod.Metadata.Name != web.Name || pod.Metadata.Namespace != web.Namespace || !pod.HasUID(web.UID) {
				t.Errorf("%+v", pod)
			}
			return
		}
		if kind := source.KindOf(err); kind == "" {
			t.Errorf("no kind: %v", err)
		}
		for _, c := range err.Error() {
			if !unicode.IsPrint(c) {
				t.Errorf("%q in %q", c, err)
			}
		}
	})
}

// FuzzRequest reads any request as the agent does: what is supported has a version and a verb of ours.
func FuzzRequest(f *testing.F) {
	f.Add(1, "pod")
	f.Add(2, "pod")
	f.Add(1, "delete")
	f.Fuzz(func(t *testing.T, version int, verb string) {
		r := agent.Request{Version: version, Verb: agent.Verb(verb)}
		known := r.Verb.IsQuestion() || r.Verb == agent.TellAdd || r.Verb == agent.TellLog
		if err := r.Supported(); (err == nil) != (version == agent.Version && known) {
			t.Error(err)
		}
	})
}
