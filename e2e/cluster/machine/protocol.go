package machine

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// A request of the caller to the keeper, which passes on to init what is about services.
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

// A reply to a request; there is one for each.
type reply struct {
	// PID of init, for the keeper.
	PID   int    `json:"pid,omitempty"`
	Error string `json:"error,omitempty"`
}

// A line is a connection to the next process: requests go there, replies come back.
type line struct {
	to   *json.Encoder
	from *json.Decoder
}

func newLine(to io.Writer, from io.Reader) line {
	return line{to: json.NewEncoder(to), from: json.NewDecoder(from)}
}

// ask returns the reply to a request. The error is the other side's, or says that it is gone.
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

// answer is the reply for an error, or none.
func answer(err error) reply {
	if err != nil {
		return reply{Error: err.Error()}
	}
	return reply{}
}
