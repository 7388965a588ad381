package client_test

import (
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-mesh/sluice/plugin/agent"
	"github.com/sluice-mesh/sluice/plugin/agent/agenttest"
	"github.com/sluice-mesh/sluice/plugin/agent/client"
)

var sampleAdd = agent.Add{
	Result: "success", Decision: "redirect", Reason: "mesh-pod", Backend: "nft",
	Duration: 1500 * time.Microsecond, Bytes: 4096,
	Namespace: "default", Name: "web", UID: "556740d7",
}

// collect listens on a socket. It returns the path of the socket and a channel of the received
// requests.
func collect(t *testing.T) (string, <-chan string) {
	requests := make(chan string, 10)
	return agenttest.Listen(t, func(c *net.UnixConn) {
		text, err := agent.ReadFrame(c, agent.MaxRequest)
		if err != nil {
			t.Error(err)
		}
		if rest, err := io.ReadAll(c); err != nil || len(rest) > 0 {
			t.Errorf("after the request: data %q, error %v, want neither", rest, err)
		}
		requests <- string(text)
	}), requests
}

func TestReportAndLogLineAreSent(t *testing.T) {
	path, requests := collect(t)
	c := client.New(client.Options{Socket: path})
	if err := c.Report(sampleAdd); err != nil {
		t.Fatal(err)
	}
	if n, err := c.Write([]byte("{\"msg\":\"ADD\"}\n")); n != 14 || err != nil {
		t.Errorf("Write returns %d and error %v, want 14 without an error", n, err)
	}
	want := []string{
		`{"version":1,"verb":"add","add":{"result":"success","decision":"redirect","reason":"mesh-pod","backend":"nft","duration_ns":1500000,"bytes":4096,` +
			`"namespace":"default","name":"web","uid":"556740d7"}}`,
		`{"version":1,"verb":"log","line":"{\"msg\":\"ADD\"}"}`,
	}
	if d := cmp.Diff(want, []string{<-requests, <-requests}); d != "" {
		t.Errorf("requests (-want +got)\n%s", d)
	}
}

// TestWriteNeverFails checks that Write returns no error even if the agent does not receive the
// line.
func TestWriteNeverFails(t *testing.T) {
	path, requests := collect(t)
	for _, c := range []*client.Client{
		client.New(client.Options{Socket: "/nonexistent"}),
		client.New(client.Options{Socket: path}),
	} {
		// With this line the request is longer than allowed, and is not sent.
		line := []byte(strings.Repeat("x", agent.MaxRequest))
		if n, err := c.Write(line); n != len(line) || err != nil {
			t.Errorf("Write returns %d and error %v, want %d without an error", n, err, len(line))
		}
	}
	// The agent accepts connections in order: if Write had sent a request, the agent would receive
	// it before this report.
	if err := client.New(client.Options{Socket: path}).Report(sampleAdd); err != nil {
		t.Fatal(err)
	}
	if got := <-requests; !strings.Contains(got, `"verb":"add"`) {
		t.Errorf("received %q, want only the report", got)
	}
}

// TestInvalidReportIsNotSent checks that the error of an invalid report is about the report, and
// not about the missing agent.
func TestInvalidReportIsNotSent(t *testing.T) {
	a := sampleAdd
	a.Result = "hm"
	agenttest.CheckText(t, client.New(client.Options{Socket: "/nonexistent"}).Report(a),
		`result: "hm" is not one of`)
}
