package serve_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-mesh/sluice/install/serve"
	"github.com/sluice-mesh/sluice/plugin/agent"
	"github.com/sluice-mesh/sluice/plugin/source"
)

func TestRequestsAreAnswered(t *testing.T) {
	env := start(t, socket(t), serve.Options{Objects: echo, Policy: policy})
	c := env.client()
	pod, err := c.Pod(t.Context(), web)
	if err != nil || !pod.HasUID(web.UID) {
		t.Errorf("pod %v, error %v, want UID %s", pod, err, web.UID)
	}
	namespace, err := c.Namespace(t.Context(), "default")
	if err != nil || namespace.Metadata.Labels["a"] != "b" {
		t.Errorf("namespace %v, error %v, want the label a=b", namespace, err)
	}
	if p, err := env.requestPolicy(t); err != nil || p != string(policy()) {
		t.Errorf("policy %s, error %v, want %s", p, err, policy())
	}
	if err := c.Ready(t.Context()); err != nil {
		t.Error(err)
	}
	want := []string{
		"answered success true", "answered fetched true", "answered success true",
		"answered success true",
	}
	if d := cmp.Diff(want, env.reported()); d != "" {
		t.Errorf("reports (-want +got)\n%s", d)
	}
}

func TestPolicyIsOptional(t *testing.T) {
	if p, err := start(t, socket(t), serve.Options{Objects: echo}).requestPolicy(t); err != nil || p != "{}" {
		t.Errorf("policy %s, error %v, want an empty object", p, err)
	}
}

// requestPolicy requests the configuration for the plugin.
func (env *testEnv) requestPolicy(t *testing.T) (string, error) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	body, err := agent.Caller{Socket: env.path}.Query(ctx, agent.Request{Verb: agent.GetPolicy})
	return string(body), err
}

// TestErrorsAreAnswered checks that each kind of error is returned to the plugin, and counted.
func TestErrorsAreAnswered(t *testing.T) {
	for kind, result := range map[source.Kind]serve.Outcome{
		source.NotFound: serve.NotFound, source.Replaced: serve.NotFound,
		source.Unauthorized: serve.Refused,
		source.Forbidden:    serve.Refused, source.Misconfigured: serve.Failed,
		source.Unavailable: serve.Failed,
	} {
		t.Run(string(kind), func(t *testing.T) {
			long := strings.Repeat("\x01long", 1000)
			env := start(t, socket(t),
				serve.Options{Objects: failing(source.WithKind(kind, errors.New("because "+long)))})
			_, err := env.client().Pod(t.Context(), web)
			if source.KindOf(err) != kind ||
				!strings.HasPrefix(err.Error(), "pod default/web: node agent: because ") ||
				len(err.Error()) > 1000 {
				t.Errorf("Pod: error of kind %q: %v, want a short error of kind %q", source.KindOf(err),
					err, kind)
			}
			if err := env.client().Ready(t.Context()); source.KindOf(err) != kind {
				t.Errorf("Ready: error of kind %q: %v, want kind %q", source.KindOf(err), err, kind)
			}
			want := fmt.Sprintf("answered %s true", result)
			if d := cmp.Diff([]string{want, want}, env.reported()); d != "" {
				t.Errorf("reports (-want +got)\n%s", d)
			}
		})
	}
}

func TestAnAnswerThatIsTooLongIsAnError(t *testing.T) {
	huge := make([]byte, agent.MaxBody+1)
	o := objects{pod: func(context.Context, source.Ref) ([]byte, bool, error) {
		return huge, false, nil
	}}
	_, err := start(t, socket(t), serve.Options{Objects: o}).client().Pod(t.Context(), web)
	if !source.IsUnavailable(err) ||
		!strings.Contains(err.Error(), "the answer has more than 8 MiB") {
		t.Errorf("error %v, want that the answer is too long", err)
	}
}

func TestPluginReceivesTheReasonBeforeItsTimeout(t *testing.T) {
	o := objects{pod: func(ctx context.Context, _ source.Ref) ([]byte, bool, error) {
		<-ctx.Done()
		return nil, false, errors.New("the API server does not answer")
	}}
	_, err := start(t, socket(t), serve.Options{Objects: o}).client().Pod(t.Context(), web)
	if !source.IsUnavailable(err) ||
		!strings.Contains(err.Error(), "the API server does not answer") {
		t.Errorf("error %v, want the server's reason", err)
	}
}

func TestLogLinesAndAddsArePassedOn(t *testing.T) {
	env := start(t, socket(t), serve.Options{Objects: echo})
	if _, err := env.client().Write([]byte(`{"msg":"ADD"}` + "\n")); err != nil {
		t.Fatal(err)
	}
	env.wait(t, `log {"msg":"ADD"}`)
	a := agent.Add{
		Result: "success", Decision: "redirect", Reason: "mesh-pod", Backend: "nft",
		Duration: time.Millisecond, Bytes: 7, Name: "web",
	}
	if err := env.client().Report(a); err != nil {
		t.Fatal(err)
	}
	env.wait(t, "add web success redirect nft 1ms 7")
}

// TestFetchedPodsAreReported checks that a pod that the plugin has requested from the API server
// reaches the agent.
func TestFetchedPodsAreReported(t *testing.T) {
	received := make(chan string, 1)
	env := start(t, socket(t), serve.Options{
		Objects: echo, PodFetched: func(pod []byte) error { received <- string(pod); return nil },
	})
	apiServer := env.client() // implements source.Source, as the source for the API server does
	ref := source.Ref{Namespace: "default", Name: "web", UID: "a"}
	if _, err := env.client().ReportPods(apiServer).Pod(t.Context(), ref); err != nil {
		t.Fatal(err)
	}
	if pod := <-received; !strings.Contains(pod, `"name":"web","uid":"a"`) {
		t.Errorf("the agent has received %s, want the pod", pod)
	}
}

// TestInvalidRequestsCauseOneErrorEach checks that an invalid request only causes an error for the
// agent's log and an answer with the error. A notification, and a request that cannot be parsed,
// get no answer.
func TestInvalidRequestsCauseOneErrorEach(t *testing.T) {
	for _, row := range []struct{ name, request, failed, answer string }{
		{"invalid JSON", "HTTP", "failed socket PATH: decode a request: invalid character", ""},
		{
			"a later version", `{"version":2,"verb":"pod"}`,
			"protocol version 2 is not supported, only 1 to 1", "protocol version 2",
		},
		{"no version", `{"verb":"pod"}`, "protocol version 0", "protocol version 0"},
		{
			"an unknown verb", `{"version":1,"verb":"delete"}`, `verb "delete" is unknown`,
			`verb \"delete\" is unknown`,
		},
		{
			"a log line that is not JSON", `{"version":1,"verb":"log","line":"x"}`,
			"log: the line is not a JSON object on a single line", "",
		},
		{
			"a log line that is not an object", `{"version":1,"verb":"log","line":"7"}`,
			"log: the line is not a JSON object on a single line", "",
		},
		{
			"two log lines", `{"version":1,"verb":"log","line":"{\n}"}`,
			"log: the line is not a JSON object on a single line", "",
		},
		{
			"an empty ADD report", `{"version":1,"verb":"add"}`,
			"add: the request contains no report", "",
		},
		{
			"an ADD report with an unknown result", `{"version":1,"verb":"add","add":{"result":"x"}}`,
			`add: result: "x" is not one of`, "",
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			env := start(t, socket(t), serve.Options{Objects: echo})
			answer := exchange(t, env.path, agent.AppendFrame(nil, []byte(row.request)))
			if !strings.Contains(answer, row.answer) || row.answer == "" && answer != "" {
				t.Errorf("answer %q; want the text %q, empty for no answer", answer, row.answer)
			}
			env.wait(t, strings.ReplaceAll(row.failed, "PATH", env.path))
			if reports := env.reported(); len(reports) != 1 {
				t.Errorf("reported %q, want one error", reports)
			}
		})
	}
	t.Run("an invalid pod", func(t *testing.T) {
		env := start(t, socket(t), serve.Options{
			Objects: echo, PodFetched: func([]byte) error { return errors.New("no UID") },
		})
		request := []byte(`{"version":1,"verb":"fetched","pod":{}}`)
		if answer := exchange(t, env.path, agent.AppendFrame(nil, request)); answer != "" {
			t.Errorf("answer %q, want none", answer)
		}
		env.wait(t, "fetched: no UID")
	})
	t.Run("a frame that is too long", func(t *testing.T) {
		env := start(t, socket(t), serve.Options{Objects: echo})
		if answer := exchange(t, env.path, []byte{0xff, 0xff, 0xff, 0xff}); answer != "" {
			t.Errorf("answer %q, want none", answer)
		}
		env.wait(t, "read a request: a frame of 4294967295 bytes: too long")
	})
}

// exchange sends bytes and returns the answer.
func exchange(t testing.TB, path string, request []byte) string {
	t.Helper()
	c, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Write(request); err != nil {
		t.Fatal(err)
	}
	answer, err := io.ReadAll(c)
	// The connection is reset if the server has not read all bytes of the request.
	if err != nil && !errors.Is(err, syscall.ECONNRESET) {
		t.Fatal(err)
	}
	return string(answer)
}
