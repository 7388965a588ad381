package agent

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/rules"
)

// A Caller sends requests to the node agent, each on its own connection. It refuses a listener that
// does not run as root. It is safe for concurrent use.
type Caller struct {
	// Socket is the path of the agent's socket; see [SocketIn].
	Socket string
}

// Query sends a query and returns the body of the answer. The error may be a [Refusal]. The context
// limits the time from connecting to the end of the answer, and must have a deadline. [IsTimeout]
// recognizes the error after the deadline.
func (c Caller) Query(ctx context.Context, r Request) ([]byte, error) {
	return c.query(ctx, r, nil)
}

// query is like Query, but also sends ancillary data.
func (c Caller) query(ctx context.Context, r Request, ancillary []byte) ([]byte, error) {
	conn, err := c.send(ctx, r, ancillary)
	if err != nil {
		return nil, err
	}
	defer func() { _ = conn.Close() }()
	// When ctx is canceled, a deadline in the past interrupts the reading.
	defer context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })()
	head, err := ReadFrame(conn, MaxAnswer)
	if err != nil {
		return nil, fmt.Errorf("no answer: %w", unexpectedEOF(err))
	}
	var a Answer
	if json.Unmarshal(head, &a) != nil {
		return nil, errors.New("its answer is not understood")
	}
	if err := a.err(); err != nil {
		return nil, err
	}
	if a.Version < 1 || a.Version > Version {
		return nil, fmt.Errorf("its answer has protocol version %d, not 1 to %d", a.Version,
			Version)
	}
	body, err := ReadFrame(conn, MaxBody)
	if err != nil {
		return nil, fmt.Errorf("no complete answer: %w", unexpectedEOF(err))
	}
	return body, nil
}

// decode decodes the body of an answer into value, and validates value. err is the error of the
// query; if it is not nil, decode returns it. description names the type of value in errors.
func decode[T interface{ Validate() error }](
	value T, body []byte, err error, description string,
) (T, error) {
	var none T
	if err != nil {
		return none, err
	}
	if json.Unmarshal(body, value) != nil {
		return none, errors.New("its answer is not " + description)
	}
	if err := value.Validate(); err != nil {
		return none, fmt.Errorf("its answer is invalid: %w", err)
	}
	return value, nil
}

// Send sends a request that the agent does not answer. If Send returns no error, the request was
// sent, but the agent may not have received it. The context must have a deadline.
func (c Caller) Send(ctx context.Context, r Request) error {
	conn, err := c.send(ctx, r, nil)
	if err != nil {
		return err
	}
	return conn.Close()
}

// Locate returns the location of a pod of the node. The error may be a [Refusal], of kind not-found
// if the node has no such pod.
func (c Caller) Locate(ctx context.Context, namespace, name string) (*Location, error) {
	body, err := c.Query(ctx, Request{Verb: AskLocate, Namespace: namespace, Name: name})
	found, err := decode(new(Location), body, err, "a location")
	if err == nil && (found.Namespace != namespace || found.Name != name) {
		return nil, errors.New("its answer is about another pod")
	}
	return found, err
}

// send connects, verifies that the listener runs as root, and sends a request with ancillary data.
func (c Caller) send(ctx context.Context, r Request, ancillary []byte) (*net.UnixConn, error) {
	r.Version = Version
	message, err := AppendJSON(nil, r, MaxRequest)
	if err != nil {
		return nil, err
	}
	dialed, err := new(net.Dialer).DialContext(ctx, "unix", c.Socket)
	if err != nil {
		return nil, c.connectError(err)
	}
	conn := dialed.(*net.UnixConn)
	peer, err := Peer(conn)
	if err == nil && peer.Uid != 0 {
		err = fmt.Errorf("socket %s: the listener runs as uid %d, want 0", c.Socket, peer.Uid)
	}
	if err == nil {
		end, _ := ctx.Deadline() // Query and Send require a deadline
		err = conn.SetDeadline(end)
	}
	n := 0
	if err == nil && ancillary != nil {
		n, _, err = conn.WriteMsgUnix(message, ancillary, nil)
	}
	// Do not write again if the whole message was sent with the ancillary data: the agent may
	// already have answered and closed the connection.
	if err == nil && n < len(message) {
		_, err = conn.Write(message[n:])
	}
	if err != nil {
		_ = conn.Close()
		return nil, err
	}
	return conn, nil
}

// errNotRunning is wrapped by the error of a request if nothing listens on the socket.
var errNotRunning = errors.New("no agent listens")

// IsNotRunning reports whether the error means that no agent is running.
func IsNotRunning(err error) bool { return errors.Is(err, errNotRunning) }

// IsTimeout reports whether err is the error of a request that ended because ctx ended, by its
// deadline or by cancellation. ctx is the context of the request.
func IsTimeout(ctx context.Context, err error) bool {
	// The timeout of the connection may be reported shortly before the context ends.
	return errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, context.DeadlineExceeded) ||
		ctx.Err() != nil && err != nil
}

// connectError returns a shorter error than package net for a connection that failed.
func (c Caller) connectError(err error) error {
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, unix.ECONNREFUSED):
		err = errNotRunning
	case errors.Is(err, unix.EAGAIN): // unix(7)
		err = errors.New("the listener's queue of connections is full")
	default:
		err = cmp.Or(errors.Unwrap(err), err)
	}
	return fmt.Errorf("socket %s: %w", c.Socket, err)
}

// A Refusal is the error in an answer without a body.
type Refusal struct {
	// Kind is a kind of package source, or one of [EnrollKinds]. It may also be empty, or a kind of
	// a newer agent.
	Kind string
	// Text is the agent's message. Its length is limited, but it may contain any characters.
	Text string
}

// Error returns the agent's message on one line.
func (r *Refusal) Error() string { return rules.Printable(r.Text) }

// IsNotFound reports whether the error means that the agent knows no such object.
func IsNotFound(err error) bool {
	var r *Refusal
	return errors.As(err, &r) && r.Kind == "not-found"
}
