package client

import (
	"bytes"
	"context"
	"time"

	"github.com/sluice-mesh/sluice/plugin/agent"
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
