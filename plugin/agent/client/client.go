package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/sluice-mesh/sluice/plugin/agent"
	"github.com/sluice-mesh/sluice/plugin/decide"
	"github.com/sluice-mesh/sluice/plugin/source"
)

// Options configure a [Client].
type Options struct {
	// Socket is the path of the agent's socket; see [agent.SocketIn].
	Socket string
	// Timeout limits a query, from connecting to the end of the answer. If it is not positive, the
	// limit is [DefaultTimeout].
	Timeout time.Duration
}

// DefaultTimeout is the default time limit of a query. The agent answers from memory, or with an
// error within 0.8 s.
const DefaultTimeout = time.Second

// A Client is a [source.Source] that queries the node agent. It is safe for concurrent use.
type Client struct {
	caller  agent.Caller
	timeout time.Duration
	// timedOut is set when a query other than Enroll was not answered in time. All later queries
	// except Enroll fail immediately: they would probably time out too, and the runtime waits for
	// the plugin.
	timedOut atomic.Bool
}

var _ source.Source = (*Client)(nil)

// New returns a client. The client opens a new connection to the agent for each request.
func New(o Options) *Client {
	c := &Client{caller: agent.Caller{Socket: o.Socket}, timeout: o.Timeout}
	if c.timeout <= 0 {
		c.timeout = DefaultTimeout
	}
	return c
}

// Close implements [source.Source]. It does nothing.
func (c *Client) Close() {}

// Pod implements [source.Source].
func (c *Client) Pod(ctx context.Context, ref source.Ref) (*decide.Pod, error) {
	pod := new(decide.Pod)
	err := c.request(ctx,
		agent.Request{Verb: agent.GetPod, Namespace: ref.Namespace, Name: ref.Name, UID: ref.UID},
		pod)
	if err == nil && (pod.Metadata.Namespace != ref.Namespace || pod.Metadata.Name != ref.Name ||
		ref.UID != "" && !pod.HasUID(ref.UID)) {
		err = errors.New("its answer is about another pod")
	}
	if err != nil {
		return nil, fmt.Errorf("pod %s: node agent: %w", ref.Shown(), err)
	}
	return pod, nil
}

// Namespace implements [source.Source].
func (c *Client) Namespace(ctx context.Context, name string) (*decide.Namespace, error) {
	namespace := new(decide.Namespace)
	err := c.request(ctx, agent.Request{Verb: agent.GetNamespace, Namespace: name}, namespace)
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
	if err := c.request(ctx, agent.Request{Verb: agent.GetReady}, nil); err != nil {
		return fmt.Errorf("node agent: %w", err)
	}
	return nil
}

// request sends a query and decodes the body of the answer into target, unless target is nil.
func (c *Client) request(ctx context.Context, r agent.Request, target any) error {
	if c.timedOut.Load() {
		return source.WithKind(source.Unavailable, errors.New("an earlier answer did not arrive in time"))
	}
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	start := time.Now()
	body, err := c.caller.Query(ctx, r)
	if agent.IsTimeout(ctx, err) {
		c.timedOut.Store(true)
		err = fmt.Errorf("no answer within %v", time.Since(start).Round(time.Millisecond))
	}
	if err == nil && target != nil && json.Unmarshal(body, target) != nil {
		err = fmt.Errorf("its answer is not a %s", r.Verb)
	}
	if err != nil {
		return source.WithKind(errorKind(err), err)
	}
	return nil
}

// errorKind returns the kind of the error of a query: the kind of the agent's refusal if package
// source defines it, otherwise [source.Unavailable].
func errorKind(err error) source.Kind {
	var refusal *agent.Refusal
	if errors.As(err, &refusal) && slices.Contains(source.Kinds(), source.Kind(refusal.Kind)) {
		return source.Kind(refusal.Kind)
	}
	return source.Unavailable
}
