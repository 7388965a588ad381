package client

import (
	"bytes"
	"context"
	"time"

	"github.com/sluice-mesh/sluice/plugin/agent"
)

// tellTime bounds what is not answered. It goes into the socket's buffer, so that this is about a machine that stands still.
const tellTime = 100 * time.Millisecond

// Tell reports what became of an ADD. Nobody answers: no error means that it was sent. It does not ask for more time than 100 ms.
func (c *Client) Tell(a agent.Add) error {
	if err := a.Validate(); err != nil {
		return err
	}
	return c.tell(agent.Request{Verb: agent.TellAdd, Add: &a})
}

// Write sends one line of the log. It never fails, so that a log can write here beside other places: what the agent does not take,
// since it is away or the line is too long, is lost here.
func (c *Client) Write(line []byte) (int, error) {
	_ = c.tell(agent.Request{Verb: agent.TellLog, Line: string(bytes.TrimRight(line, "\n"))})
	return len(line), nil
}

func (c *Client) tell(r agent.Request) error {
	ctx, cancel := context.WithTimeout(context.Background(), min(tellTime, c.timeout))
	defer cancel()
	return c.caller.Tell(ctx, r)
}
