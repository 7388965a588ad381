package source

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"
)

const (
	initialBackoff = 100 * time.Millisecond // see backoff
	maxBackoff     = time.Second
)

// getWithRetry repeats a request until accept accepts the answer, an error is final, or the timeout
// does not suffice for another attempt.
func (a *APIServer) getWithRetry(
	ctx context.Context, subject string, p path, accept func(body []byte) *requestError,
) error {
	c, err := a.connect()
	if err != nil {
		return WithKind(Misconfigured, fmt.Errorf("%s: %w", subject, err))
	}
	start := time.Now()
	budgetCtx, cancel := context.WithTimeout(ctx, a.options.Timeout)
	defer cancel()
	var last *requestError
	for attempts := 1; ; attempts++ {
		failure := a.attempt(budgetCtx, c, p, accept)
		if failure == nil {
			return nil
		}
		// If the timeout interrupts a request, report the error of the request before it, which is
		// more specific.
		if last == nil || failure.final || budgetCtx.Err() == nil {
			last = failure
		}
		if failure.final || !sleep(budgetCtx, failure.retryAfter+backoff(attempts)) {
			return a.finalError(ctx, c, subject, last, attemptsText(attempts, time.Since(start)))
		}
		// Behind a load balancer, a new connection may reach another API server.
		c.transport.CloseIdleConnections()
	}
}

// attempt sends one request, and returns nil if accept accepts the answer.
func (a *APIServer) attempt(
	ctx context.Context, c *client, p path, accept func(body []byte) *requestError,
) *requestError {
	ctx, cancel := context.WithTimeout(ctx, a.options.RequestTimeout)
	defer cancel()
	body, failure := c.get(ctx, p)
	if failure != nil {
		return failure
	}
	return accept(body)
}

// finalError returns the error after the last attempt. If the credentials were refused, it also
// discards the client c. attempts is the text of attemptsText.
func (a *APIServer) finalError(
	ctx context.Context, c *client, subject string, last *requestError, attempts string,
) error {
	if last.kind == Unauthorized {
		a.discardClient(c)
	}
	err := fmt.Errorf("%s: API server %s: %w%s", subject, c.server.Host, singleLine{last.err},
		attempts)
	if ctx.Err() != nil && !last.final {
		err = fmt.Errorf("%w: %w", err, context.Cause(ctx))
	}
	return WithKind(last.kind, err)
}

// discardClient makes the next request read the kubeconfig again, which may contain renewed
// credentials.
func (a *APIServer) discardClient(c *client) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.client == c {
		c.transport.CloseIdleConnections()
		a.client = nil
	}
}

// attemptsText describes the number of attempts and their duration; it is empty for one attempt.
func attemptsText(attempts int, duration time.Duration) string {
	if attempts == 1 {
		return ""
	}
	return fmt.Sprintf(" (%d attempts in %v)", attempts, duration.Round(time.Millisecond))
}

// backoff returns the time to wait after a number of attempts: a random time between half of a
// limit and the limit, so that the nodes of a cluster do not all send requests at the same time
// when the API server is available again. The limit is initialBackoff after the first attempt, and
// doubles with each further attempt, up to maxBackoff.
func backoff(attempts int) time.Duration {
	limit := min(maxBackoff, initialBackoff<<min(attempts-1, 10)) // 10: the shift must not overflow
	return limit/2 + rand.N(limit/2+1)
}

// sleep waits for d and returns true. It returns false when ctx ends, or immediately if ctx would
// end before d has passed.
func sleep(ctx context.Context, d time.Duration) bool {
	if end, ok := ctx.Deadline(); ok && time.Until(end) <= d {
		return false
	}
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}
