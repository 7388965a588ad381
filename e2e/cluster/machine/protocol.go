package machine

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// A request is sent by the caller to the monitor, which forwards requests about services to init.
type request struct {
	Do      verb   `json:"do"`
	Service string `json:"service,omitempty"`
}

// A verb is what a request asks for.
type verb string

// The verbs: to boot or reboot the machine, and to stop, start or kill a service.
const (
	boot         verb = "boot"
	stopService  verb = "stop"
	startService verb = "start"
	killService  verb = "kill"
)

// A reply is sent for each request.
type reply struct {
	// PID is the process ID of init as seen by the monitor. Only the reply to boot contains it.
	PID   int    `json:"pid,omitempty"`
	Error string `json:"error,omitempty"`
}

// A conn is the connection to the next process, for requests and replies.
type conn struct {
	to   *json.Encoder
	from *json.Decoder
}

// newConn returns a connection that writes requests to to and reads replies from from.
func newConn(to io.Writer, from io.Reader) conn {
	return conn{to: json.NewEncoder(to), from: json.NewDecoder(from)}
}

// call sends a request and returns its reply. The error is the error in the reply, or reports
// that the other process has ended.
func (c conn) call(r request) (reply, error) {
	var received reply
	if err := c.to.Encode(r); err != nil {
		return received, fmt.Errorf("request %s: the other process has ended: %w", r.Do, err)
	}
	if err := c.from.Decode(&received); err != nil {
		return received, fmt.Errorf("request %s: the other process has ended: %w", r.Do, err)
	}
	if received.Error != "" {
		return received, errors.New(received.Error)
	}
	return received, nil
}

// replyFor returns the reply for an error, which may be nil.
func replyFor(err error) reply {
	if err != nil {
		return reply{Error: err.Error()}
	}
	return reply{}
}
