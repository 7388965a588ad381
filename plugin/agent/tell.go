package agent

import (
	"bytes"
	"context"
	"time"
)

// tellTime bounds what is not answered. It goes into the socket's buffer, so that this is about a machine that stands still.
const tellTime = 100 * time.Millisecond

// Tell reports what became of an ADD. Nobody answers: no error means that it was sent. It does not ask for more time than 100 ms.
func (c *Client) Tell(a Add) error {
	if err := a.Validate(); err != nil {
		return err
	}
	return c.tell(Request{Verb: TellAdd, Add: &a})
}

// Write sends one line of the log. It never fails, so that a log can write here beside other places: what the agent does not take,
// since it is away or the line is too long, is lost here.
func (c *Client) Write(line []byte) (int, error) {
	_ = c.tell(Request{Verb: TellLog, Line: string(bytes.TrimRight(line, "\n"))})
	return len(line), nil
}

func (c *Client) tell(r Request) error {
	ctx, cancel := context.WithTimeout(context.Background(), min(tellTime, c.options.Timeout))
	defer cancel()
	conn, err := c.send(ctx, r)
	if err != nil {
		return err
	}
	return conn.Close()
}
