package machine

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// A request is sent by the caller to the keeper, which forwards requests about services to init.
type request struct {
	Do      verb   `json:"do"`
	Service string `json:"service,omitempty"`
}

type verb string

const (
	boot         verb = "boot"
	stopService  verb = "stop"
	startService verb = "start"
	killService  verb = "kill"
)

// A reply is sent for each request.
type reply struct {
	// PID is init's process ID, for the keeper.
	PID   int    `json:"pid,omitempty"`
	Error string `json:"error,omitempty"`
}

// A line is the connection to the next process, for requests and replies.
type line struct {
	to   *json.Encoder
	from *json.Decoder
}

func newLine(to io.Writer, from io.Reader) line {
	return line{to: json.NewEncoder(to), from: json.NewDecoder(from)}
}

// ask sends a request and returns its reply. The error is from the other side, or reports that it
// has ended.
func (l line) ask(r request) (reply, error) {
	var answer reply
	if err := l.to.Encode(r); err != nil {
		return answer, fmt.Errorf("%s: the process is gone: %w", r.Do, err)
	}
	if err := l.from.Decode(&answer); err != nil {
		return answer, fmt.Errorf("%s: the process is gone: %w", r.Do, err)
	}
	if answer.Error != "" {
		return answer, errors.New(answer.Error)
	}
	return answer, nil
}

// answer returns the reply for an error, which may be nil.
func answer(err error) reply {
	if err != nil {
		return reply{Error: err.Error()}
	}
	return reply{}
}
