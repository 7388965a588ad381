package agent_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-mesh/sluice/plugin/agent"
	"github.com/sluice-mesh/sluice/plugin/agent/agenttest"
	"github.com/sluice-mesh/sluice/rules"
)

func TestAPodIsLocated(t *testing.T) {
	var requested string
	c := agent.Caller{Socket: agenttest.Listen(t, func(c *net.UnixConn) {
		text, err := agent.ReadFrame(c, agent.MaxRequest)
		if err != nil {
			t.Error(err)
		}
		requested = string(text)
		_, _ = c.Write(agenttest.Frames(`{"version":1}`, locationJSON))
	})}
	got, err := c.Locate(requestContext(t), "default", "web")
	if err != nil {
		t.Fatal(err)
	}
	want := &agent.Location{
		Namespace: "default", Name: "web", UID: "556740d7", NetNS: "/proc/7/ns/net",
		Decision: "skip", Reason: "not-injected",
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("location (-want +got)\n%s", d)
	}
	if want := `{"version":1,"verb":"locate","namespace":"default","name":"web"}`; requested != want {
		t.Errorf("requested %s, want %s", requested, want)
	}
}

func TestErrorsSayWhyAPodIsNotLocated(t *testing.T) {
	for _, row := range []struct {
		name, text string
		answer     []byte
		notFound   bool
	}{
		{
			"the node has no such pod", "no such pod",
			agenttest.Frames(`{"version":1,"kind":"not-found","error":"no such pod"}`), true,
		},
		{
			"an error of the agent", "hm",
			agenttest.Frames(`{"version":1,"kind":"unavailable","error":"hm"}`), false,
		},
		{
			"another pod", "its answer is about another pod",
			agenttest.Frames(`{"version":1}`, strings.Replace(locationJSON, `"web"`, `"db"`, 1)), false,
		},
		{
			"no location", "its answer is not a location", agenttest.Frames(`{"version":1}`, `[]`),
			false,
		},
		{
			"an invalid location", "decision: \"x\" is neither",
			agenttest.Frames(`{"version":1}`, strings.Replace(locationJSON, "skip", "x", 1)), false,
		},
		{"an empty answer", "no answer: unexpected EOF", nil, false},
	} {
		t.Run(row.name, func(t *testing.T) {
			c := agent.Caller{Socket: agenttest.Listen(t, agenttest.Reply(t, row.answer))}
			_, err := c.Locate(requestContext(t), "default", "web")
			agenttest.CheckText(t, err, row.text)
			if agent.IsNotFound(err) != row.notFound || agent.IsNotRunning(err) {
				t.Errorf("not found: %v, want %v; not running: %v, want false; error %#v",
					agent.IsNotFound(err), row.notFound, agent.IsNotRunning(err), err)
			}
		})
	}
	t.Run("no agent", func(t *testing.T) {
		_, err := agent.Caller{Socket: "/nonexistent"}.Locate(requestContext(t), "default", "web")
		if !agent.IsNotRunning(err) {
			t.Errorf("error %v does not mean that no agent is running", err)
		}
	})
}

func TestLocationValidate(t *testing.T) {
	redirect := rules.DefaultRedirect()
	for _, row := range []struct {
		name   string
		change func(*agent.Location)
		text   string
	}{
		{"a pod that is not redirected", func(*agent.Location) {}, ""},
		{"a pod of the mesh", func(l *agent.Location) {
			l.Decision, l.Redirect, l.Backend = "redirect", &redirect, "nft"
		}, ""},
		{"no pod", func(l *agent.Location) { l.Name = "" }, "the pod has no namespace or no name"},
		{"another decision", func(l *agent.Location) {
			l.Decision = "undecided"
		}, `decision: "undecided" is neither redirect nor ambient nor skip`},
		{"a redirection without its parameters", func(l *agent.Location) {
			l.Decision = "redirect"
		}, "does not match the parameters"},
		{"parameters of a pod that is not redirected", func(l *agent.Location) {
			l.Redirect = &redirect
		}, "does not match the parameters"},
		{"invalid parameters", func(l *agent.Location) {
			l.Decision, l.Redirect = "redirect", &rules.Redirect{}
		}, "redirect: "},
		{"another backend", func(l *agent.Location) {
			l.Backend = "ebpf"
		}, `backend: "ebpf" is neither nft nor legacy`},
	} {
		t.Run(row.name, func(t *testing.T) {
			l := agent.Location{
				Namespace: "default", Name: "web", Decision: "skip", Reason: "not-injected",
			}
			row.change(&l)
			err := l.Validate()
			if row.text != "" {
				agenttest.CheckText(t, err, row.text)
			} else if err != nil {
				t.Errorf("error %v, want none", err)
			}
		})
	}
}

func TestIsTimeout(t *testing.T) {
	expired, cancel := context.WithCancel(t.Context())
	cancel()
	for name, row := range map[string]struct {
		ctx  context.Context
		err  error
		want bool
	}{
		"an answer before the deadline": {t.Context(), nil, false},
		"an answer at the deadline":     {expired, nil, false},
		"no agent": {
			t.Context(), errors.New("connection refused"), false,
		},
		"no answer": {t.Context(), fmt.Errorf("no answer: %w", os.ErrDeadlineExceeded), true},
		"no connection, with a timeout before the context's deadline": {
			t.Context(), fmt.Errorf("dial: %w", context.DeadlineExceeded), true,
		},
		"any error at the deadline": {
			expired, errors.New("use of closed connection"), true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			if got := agent.IsTimeout(row.ctx, row.err); got != row.want {
				t.Errorf("timeout: %v, want %v", got, row.want)
			}
		})
	}
}
