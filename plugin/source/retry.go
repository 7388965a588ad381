package source

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"
)

const (
	// firstPause is the longest pause after the first request. It doubles with each further
	// request, up to longestPause.
	firstPause   = 100 * time.Millisecond
	longestPause = time.Second
)

// ask repeats a request until the answer is accepted, an error is final, or the budget does not
// suffice for another pause.
func (a *APIServer) ask(
	ctx context.Context, subject string, p path, accept func(body []byte) *requestError,
) error {
	c, err := a.connect()
	if err != nil {
		return WithKind(Misconfigured, fmt.Errorf("%s: %w", subject, err))
	}
	start := time.Now()
	within, cancel := context.WithTimeout(ctx, a.options.budget())
	defer cancel()
	var last *requestError
	for tries := 1; ; tries++ {
		t := a.try(within, c, p, accept)
		if t == nil {
			return nil
		}
		// A request that the end of the budget interrupts says less than the one before it.
		if last == nil || t.final || within.Err() == nil {
			last = t
		}
		if t.final || !rest(within, t.after+pause(tries)) {
			return a.give(ctx, c, subject, last, effort(tries, time.Since(start)))
		}
		// Behind a load balancer another connection may reach another API server.
		c.transport.CloseIdleConnections()
	}
}

// try sends one request.
func (a *APIServer) try(
	ctx context.Context, c *client, p path, accept func(body []byte) *requestError,
) *requestError {
	ctx, cancel := context.WithTimeout(ctx, a.options.try())
	defer cancel()
	body, t := c.get(ctx, p)
	if t != nil {
		return t
	}
	return accept(body)
}

// give returns the error after the last request.
func (a *APIServer) give(
	ctx context.Context, c *client, subject string, last *requestError, effort string,
) error {
	if last.kind == Unauthorized {
		a.forget(c)
	}
	err := fmt.Errorf("%s: API server %s: %w%s", subject, c.server.Host, line{last.err}, effort)
	if ctx.Err() != nil && !last.final {
		err = fmt.Errorf("%w: %w", err, context.Cause(ctx))
	}
	return WithKind(last.kind, err)
}

// forget makes the next request read the kubeconfig again: renewed credentials are in a new file.
func (a *APIServer) forget(c *client) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.client == c {
		a.drop()
	}
}

// effort describes the number of requests and their time, if there were several.
func effort(tries int, took time.Duration) string {
	if tries == 1 {
		return ""
	}
	return fmt.Sprintf(" (%d tries in %v)", tries, took.Round(time.Millisecond))
}

// pause returns the time to wait after so many requests: a random time between half of a step and
// all of it, so that not all nodes of a cluster send requests at once when the API server is back.
func pause(tries int) time.Duration {
	step := min(longestPause, firstPause<<min(tries-1, 10))
	return step/2 + rand.N(step/2+1)
}

// rest waits. It returns false as soon as the context ends.
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
