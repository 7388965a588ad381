package client

import (
	"bytes"
	"context"
	"encoding/json"
	"time"

	"github.com/sluice-mesh/sluice/plugin/agent"
	"github.com/sluice-mesh/sluice/plugin/decide"
	"github.com/sluice-mesh/sluice/plugin/source"
)

// sendTimeout limits requests without an answer. Such a request fits into the socket's buffer:
// sending takes longer only on an overloaded machine.
const sendTimeout = 100 * time.Millisecond

// Report sends the result of an ADD, in at most 100 ms. The agent does not answer: no error means
// that the report was sent. An invalid report is an error, and is not sent.
func (c *Client) Report(a agent.Add) error {
	if err := a.Validate(); err != nil {
		return err
	}
	return c.send(agent.Request{Verb: agent.NotifyAdd, Add: &a})
}

// ReportPods returns a source that returns the pods of s, and sends each of them to the agent in at
// most 100 ms. The agent returns the pod to later requests if the API server becomes unavailable
// before the agent has listed the node's pods. A pod that is too long for a request is not sent.
func (c *Client) ReportPods(s source.Source) source.Source { return reportingSource{s, c} }

// A reportingSource is the source that [Client.ReportPods] returns.
type reportingSource struct {
	source.Source
	client *Client
}

// Pod implements [source.Source].
func (p reportingSource) Pod(ctx context.Context, ref source.Ref) (*decide.Pod, error) {
	pod, err := p.Source.Pod(ctx, ref)
	if err != nil {
		return pod, err
	}
	if text, err := json.Marshal(pod); err == nil {
		_ = p.client.send(agent.Request{Verb: agent.NotifyPod, Pod: text})
	}
	return pod, nil
}

// Write sends one line of the log. Write never fails, so that a log can continue with its other
// writers. If the agent is absent or the line is too long for a request, the line is lost.
func (c *Client) Write(line []byte) (int, error) {
	_ = c.send(agent.Request{Verb: agent.NotifyLog, Line: string(bytes.TrimRight(line, "\n"))})
	return len(line), nil
}

// send sends a request that is not answered.
func (c *Client) send(r agent.Request) error {
	ctx, cancel := context.WithTimeout(context.Background(), min(sendTimeout, c.timeout))
	defer cancel()
	return c.caller.Send(ctx, r)
}
