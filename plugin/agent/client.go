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
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/plugin/decide"
	"github.com/sluice-mesh/sluice/plugin/source"
)

// Options say how the node agent is asked.
type Options struct {
	// Socket is the path of its socket; see [SocketIn].
	Socket string
	// Timeout is the time for a question from connecting to the end of the answer; 1 s if it is not positive.
	Timeout time.Duration
	// Owner is the uid that the agent must run as: whoever else listens is not believed.
	Owner uint32
}

// A Client is a [source.Source] that asks the node agent. It is safe for concurrent use.
type Client struct {
	options Options
	// slow says that a question was not answered in time. The next one would not be either, and the runtime waits.
	slow atomic.Bool
}

var _ source.Source = (*Client)(nil)

// New returns a client. It does not connect: that is done for each question.
func New(o Options) *Client {
	if o.Timeout <= 0 {
		o.Timeout = time.Second
	}
	return &Client{options: o}
}

// Close implements [source.Source]. There is nothing to close.
func (c *Client) Close() {}

// Pod implements [source.Source].
func (c *Client) Pod(ctx context.Context, ref source.Ref) (*decide.Pod, error) {
	pod := new(decide.Pod)
	err := c.ask(ctx, Request{Verb: AskPod, Namespace: ref.Namespace, Name: ref.Name, UID: ref.UID}, pod)
	if err == nil && (pod.Metadata.Namespace != ref.Namespace || pod.Metadata.Name != ref.Name || ref.UID != "" && !pod.HasUID(ref.UID)) {
		err = errors.New("its answer is about another pod")
	}
	if err != nil {
		return nil, fmt.Errorf("pod %s: node agent: %w", ref, err)
	}
	return pod, nil
}

// Namespace implements [source.Source].
func (c *Client) Namespace(ctx context.Context, name string) (*decide.Namespace, error) {
	namespace := new(decide.Namespace)
	err := c.ask(ctx, Request{Verb: AskNamespace, Namespace: name}, namespace)
	if err == nil && namespace.Metadata.Name != name {
		err = errors.New("its answer is about another namespace")
	}
	if err != nil {
		return nil, fmt.Errorf("namespace %s: node agent: %w", name, err)
	}
	return namespace, nil
}

// Ready implements [source.Source].
func (c *Client) Ready(ctx context.Context) error {
	if err := c.ask(ctx, Request{Verb: AskReady}, nil); err != nil {
		return fmt.Errorf("node agent: %w", err)
	}
	return nil
}

// Policy returns the plugin's configuration as the agent would have it now: an object with fields of package config. It may be
// newer than the one that the runtime has. Without one it is nil.
func (c *Client) Policy(ctx context.Context) (json.RawMessage, error) {
	var policy map[string]json.RawMessage
	if err := c.ask(ctx, Request{Verb: AskPolicy}, &policy); err != nil {
		return nil, fmt.Errorf("policy: node agent: %w", err)
	}
	if len(policy) == 0 {
		return nil, nil
	}
	return json.Marshal(policy)
}

// ask puts a question and fills into with the body of the answer, unless it is nil.
func (c *Client) ask(ctx context.Context, r Request, into any) error {
	if c.slow.Load() {
		return source.WithKind(source.Unavailable, errors.New("it was too slow to answer before"))
	}
	ctx, cancel := context.WithTimeout(ctx, c.options.Timeout)
	defer cancel()
	body, err := c.exchange(ctx, r)
	if errors.Is(err, os.ErrDeadlineExceeded) || ctx.Err() != nil && err != nil {
		c.slow.Store(true)
		err = errors.New("no answer in time")
	}
	if err == nil && into != nil {
		if json.Unmarshal(body, into) != nil {
			err = fmt.Errorf("its answer is no %s", r.Verb)
		}
	}
	if err != nil {
		return source.WithKind(source.KindOf(err), err)
	}
	return nil
}

// exchange sends a question and reads the answer.
func (c *Client) exchange(ctx context.Context, r Request) ([]byte, error) {
	conn, err := c.send(ctx, r)
	if err != nil {
		return nil, err
	}
	defer func() { _ = conn.Close() }()
	defer context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })()
	head, err := ReadFrame(conn, MaxAnswer)
	if err != nil {
		return nil, fmt.Errorf("no answer: %w", unexpected(err))
	}
	var a Answer
	if json.Unmarshal(head, &a) != nil {
		return nil, errors.New("its answer is not understood")
	}
	if err := a.err(); err != nil {
		return nil, err
	}
	if a.Version < 1 || a.Version > Version {
		return nil, fmt.Errorf("its answer has protocol version %d, and not 1 to %d", a.Version, Version)
	}
	body, err := ReadFrame(conn, MaxBody)
	if err != nil {
		return nil, fmt.Errorf("no complete answer: %w", unexpected(err))
	}
	return body, nil
}

// send connects, looks who is there and sends a request.
func (c *Client) send(ctx context.Context, r Request) (*net.UnixConn, error) {
	r.Version = Version
	message, err := AppendJSON(nil, r, MaxRequest)
	if err != nil {
		return nil, err
	}
	dialed, err := new(net.Dialer).DialContext(ctx, "unix", c.options.Socket)
	if err != nil {
		return nil, c.unreached(err)
	}
	conn := dialed.(*net.UnixConn)
	uid, err := PeerUID(conn)
	if err == nil && uid != c.options.Owner {
		err = fmt.Errorf("socket %s belongs to uid %d and not to %d", c.options.Socket, uid, c.options.Owner)
	}
	if err == nil {
		end, _ := ctx.Deadline() // there always is one
		err = conn.SetDeadline(end)
	}
	if err == nil {
		_, err = conn.Write(message)
	}
	if err != nil {
		_ = conn.Close()
		return nil, err
	}
	return conn, nil
}

// unreached says why there is no connection, in fewer words than package net.
func (c *Client) unreached(err error) error {
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, unix.ECONNREFUSED):
		err = errors.New("it is not running")
	case errors.Is(err, unix.EAGAIN):
		err = errors.New("too many wait for it already")
	default:
		err = cmp.Or(errors.Unwrap(err), err)
	}
	return fmt.Errorf("socket %s: %w", c.options.Socket, err)
}
