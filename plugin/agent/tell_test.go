package agent_test

import (
	"io"
	"net"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-mesh/sluice/plugin/agent"
)

var added = agent.Add{
	Result: "success", Decision: "redirect", Backend: "nft", Duration: 1500 * time.Microsecond, Bytes: 4096,
	Namespace: "default", Name: "web", UID: "556740d7",
}

func lockThreadForGood() { runtime.LockOSThread() } // the thread ends with its goroutine

// collect makes a socket that keeps what it is told.
func collect(t *testing.T) (string, <-chan string) {
	told := make(chan string, 10)
	return listen(t, func(c *net.UnixConn) {
		text, err := agent.ReadFrame(c, agent.MaxRequest)
		if err != nil {
			t.Error(err)
		}
		if rest, err := io.ReadAll(c); err != nil || len(rest) > 0 {
			t.Errorf("and then %q, %v", rest, err)
		}
		told <- string(text)
	}), told
}

func TestTold(t *testing.T) {
	path, told := collect(t)
	c := agent.New(agent.Options{Socket: path})
	if err := c.Tell(added); err != nil {
		t.Fatal(err)
	}
	if n, err := c.Write([]byte("{\"msg\":\"ADD\"}\n")); n != 14 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	want := []string{
		`{"version":1,"verb":"add","add":{"result":"success","decision":"redirect","backend":"nft","duration_ns":1500000,"bytes":4096,` +
			`"namespace":"default","name":"web","uid":"556740d7"}}`,
		`{"version":1,"verb":"log","line":"{\"msg\":\"ADD\"}"}`,
	}
	if d := cmp.Diff(want, []string{<-told, <-told}); d != "" {
		t.Errorf("(-want +got)\n%s", d)
	}
}

// A log goes on whatever becomes of its lines here.
func TestWriteNeverFails(t *testing.T) {
	path, told := collect(t)
	for _, c := range []*agent.Client{agent.New(agent.Options{Socket: "/nonexistent"}), agent.New(agent.Options{Socket: path})} {
		line := []byte(strings.Repeat("x", agent.MaxRequest))
		if n, err := c.Write(line); n != len(line) || err != nil {
			t.Errorf("%d, %v", n, err)
		}
	}
	if len(told) > 0 {
		t.Errorf("told %q", <-told)
	}
}

func TestWhatIsToldOfAnAdd(t *testing.T) {
	for _, row := range []struct {
		name   string
		change func(*agent.Add)
		text   string
	}{
		{"a success", func(*agent.Add) {}, ""},
		{"a failure without rules", func(a *agent.Add) { a.Result, a.Backend, a.Bytes = "error", "none", 0 }, ""},
		{"an unknown result", func(a *agent.Add) { a.Result = "hm" }, `result: "hm" is none of ["success" "error"]`},
		{"an unknown decision", func(a *agent.Add) { a.Decision = "" }, `decision: "" is none of`},
		{"an unknown backend", func(a *agent.Add) { a.Backend = "ebpf" }, `backend: "ebpf" is none of`},
		{"a negative duration", func(a *agent.Add) { a.Duration = -1 }, "duration: -1ns is negative"},
		{"a negative size", func(a *agent.Add) { a.Bytes = -1 }, "bytes: -1 is negative"},
	} {
		t.Run(row.name, func(t *testing.T) {
			a := added
			row.change(&a)
			err := a.Validate()
			if row.text == "" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			checkText(t, err, row.text)
			checkText(t, agent.New(agent.Options{Socket: "/nonexistent"}).Tell(a), row.text)
		})
	}
}
