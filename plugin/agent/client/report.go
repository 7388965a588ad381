package client

import (
	"bytes"
	"context"
	"time"

	"github.com/sluice-mesh/sluice/plugin/agent"
)

// sendTimeout limits requests without an answer. They fit into the socket's buffer, so that sending
// takes longer only on a machine that is overloaded.
const sendTimeout = 100 * time.Millisecond

// Report sends the result of an ADD. The agent does not answer: no error means that it was sent. It
// takes at most 100 ms.
func (c *Client) Report(a agent.Add) error {
	if err := a.Validate(); err != nil {
		return err
	}
	return c.send(agent.Request{Verb: agent.NotifyAdd, Add: &a})
}

// Write sends one line of the log. It never fails, so that a log continues with its other writers.
// A line that the agent does not receive, because it is absent or the line is too long, is lost.
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
