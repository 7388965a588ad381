package source

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"
)

const (
	// firstPause is the longest pause after the first try; each further one may be twice as long, up to longestPause.
	firstPause   = 100 * time.Millisecond
	longestPause = time.Second
)

// ask tries until the answer is accepted, a trouble is final, or the budget would not suffice for another pause.
func (a *APIServer) ask(ctx context.Context, subject string, p path, accept func(body []byte) *trouble) error {
	c, err := a.connect()
	if err != nil {
		return WithKind(Misconfigured, fmt.Errorf("%s: %w", subject, err))
	}
	start := time.Now()
	within, cancel := context.WithTimeout(ctx, a.options.budget())
	defer cancel()
	var last *trouble
	for tries := 1; ; tries++ {
		t := a.try(within, c, p, accept)
		if t == nil {
			return nil
		}
		// A try that the end of the budget cut short has less to say than the one before it.
		if last == nil || t.final || within.Err() == nil {
			last = t
		}
		if t.final || !rest(within, t.after+pause(tries)) {
			return a.give(ctx, c, subject, last, effort(tries, time.Since(start)))
		}
		// Behind a load balancer another connection may find another API server.
		c.transport.CloseIdleConnections()
	}
}

// try makes one try.
func (a *APIServer) try(ctx context.Context, c *client, p path, accept func(body []byte) *trouble) *trouble {
	ctx, cancel := context.WithTimeout(ctx, a.options.try())
	defer cancel()
	body, t := c.get(ctx, p)
	if t != nil {
		return t
	}
	return accept(body)
}

// give makes the error of a question that was given up.
func (a *APIServer) give(ctx context.Context, c *client, subject string, last *trouble, effort string) error {
	if last.kind == Unauthorized {
		a.forget(c)
	}
	err := fmt.Errorf("%s: API server %s: %w%s", subject, c.server.Host, line{last.err}, effort)
	if ctx.Err() != nil && !last.final {
		err = fmt.Errorf("%w: %w", err, context.Cause(ctx))
	}
	return WithKind(last.kind, err)
}

// forget lets the next question read the kubeconfig again: whoever renews the credentials replaces it.
func (a *APIServer) forget(c *client) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.client == c {
		a.drop()
	}
}

// effort says how hard it was tried, if that was more than once.
func effort(tries int, took time.Duration) string {
	if tries == 1 {
		return ""
	}
	return fmt.Sprintf(" (%d tries in %v)", tries, took.Round(time.Millisecond))
}

// pause returns how long to wait after so many tries: at least half and at most all of a step, so that the nodes of a cluster do
// not come all at once when its API server is back.
func pause(tries int) time.Duration {
	step := min(longestPause, firstPause<<min(tries-1, 10))
	return step/2 + rand.N(step/2+1)
}

// rest waits. It returns false at once if the context ends before that.
func rest(ctx context.Context, d time.Duration) bool {
	if end, ok := ctx.Deadline(); ok && time.Until(end) <= d {
		return false
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
