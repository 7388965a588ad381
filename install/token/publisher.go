package token

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/sluice-mesh/sluice/install/apiclient"
	"github.com/sluice-mesh/sluice/plugin/file"
	"github.com/sluice-mesh/sluice/plugin/source"
)

// Options are the options of a [Publisher].
type Options struct {
	// Kubeconfig is the path of the plugin's kubeconfig, Mode its mode (0600).
	Kubeconfig string
	Mode       fs.FileMode
	// Options contains the address of the API server. TokenFile is the token that the kubelet
	// projects into the agent's pod.
	apiclient.Options
	// Lifetime is the lifetime in a TokenRequest (24 h); the API server may assign less. An outage
	// of the API server or of the agent may last half of it.
	Lifetime time.Duration
	// CheckEvery is the longest interval for checking the published token (10 min) while the checks
	// succeed. An interval is shorter by a random part of at most a quarter.
	CheckEvery time.Duration
	// Namespaces reports that the plugin also reads namespaces and needs the permission.
	Namespaces bool
	// Poll checks the files only every 10 s, and not when they change: for file systems without
	// inotify.
	Poll bool
	// Changed, unless nil, is called with each new status, and must not block.
	Changed func(Status)
}

const (
	defaultLifetime = 24 * time.Hour
	// defaultCheck is the default interval for checking the published token, and askEvery the
	// interval for requesting a token instead of the projected one.
	defaultCheck    = 10 * time.Minute
	requestInterval = 10 * time.Minute
	// retryCheckAfter is the delay after a failed check: a permission may have been granted, or the
	// API server may be available again. On 10,000 nodes without permissions this causes 2,000
	// connections per second, less than those for watching their pods. It is shortened by up to
	// half, at random.
	retryCheckAfter = 5 * time.Second
)

// A Publisher maintains the kubeconfig. Use [New]. Status may be called at any time, Run once.
type Publisher struct {
	options Options

	// Only the goroutine of Run uses these fields.
	token   string // published token
	content []byte // published kubeconfig, checked successfully
	renewAt time.Time
	checkAt time.Time

	checkRequested chan struct{} // buffered; see Check

	mu     sync.Mutex
	status Status
}

// New returns a publisher that has not published a token.
func New(o Options) *Publisher {
	if o.Mode == 0 {
		o.Mode = 0o600
	}
	if o.Lifetime <= 0 {
		o.Lifetime = defaultLifetime
	}
	if o.CheckEvery <= 0 {
		o.CheckEvery = defaultCheck
	}
	return &Publisher{options: o, checkRequested: make(chan struct{}, 1)}
}

// Check makes Run check the published token immediately, and replace it if it is rejected. It does
// not block.
func (p *Publisher) Check() {
	select {
	case p.checkRequested <- struct{}{}:
	default:
	}
}

// Status returns the current status.
func (p *Publisher) Status() Status {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.status
}

// set changes and reports the status.
func (p *Publisher) set(change func(*Status)) {
	p.mu.Lock()
	change(&p.status)
	current := p.status
	p.mu.Unlock()
	if p.options.Changed != nil {
		p.options.Changed(current)
	}
}

// reconcile compares the published kubeconfig with the desired one, and updates it. It returns the
// problem, if any.
func (p *Publisher) reconcile(ctx context.Context) error {
	now := time.Now()
	if p.content != nil {
		// Restore a changed file first, independent of the API server.
		if _, err := file.Write(p.options.Kubeconfig, p.content, p.options.Mode); err != nil {
			return p.setProblem(err)
		}
	}
	if p.content != nil && !now.Before(p.checkAt) {
		p.check(ctx, now)
	}
	projected, err := p.options.projected()
	if err != nil {
		return p.setProblem(err)
	}
	token, origin := p.token, p.Status().Origin
	if p.content == nil || now.After(p.renewAt) || origin == Projected && token != projected {
		if token, origin, err = p.nextToken(ctx, projected); err != nil {
			return p.setProblem(err)
		}
	}
	content, err := p.options.kubeconfig(token)
	if err != nil {
		return p.setProblem(err)
	}
	if bytes.Equal(content, p.content) {
		p.planRenewal(now, origin)
		p.clearProblem()
		return nil
	}
	return p.publish(ctx, now, token, origin, content)
}

// projected reads the token of the agent's pod.
func (o *Options) projected() (string, error) {
	token, err := apiclient.ReadToken(o.TokenFile)
	if err != nil {
		return "", err
	}
	if !wellFormed(token) {
		return "", fmt.Errorf("service account token: %s contains no valid token", o.TokenFile)
	}
	return token, nil
}

// nextToken returns the token to publish: a new one, or the projected one if none can be requested.
// A valid token is not replaced because of a temporary failure.
func (p *Publisher) nextToken(ctx context.Context, projected string) (string, Origin, error) {
	token, err := p.options.issue(ctx, projected)
	switch {
	case err == nil:
		return token, Requested, nil
	case errors.Is(err, errNotPermitted), p.content == nil:
		return projected, Projected, nil
	}
	return "", "", fmt.Errorf("request a token: %w", err)
}

// check checks the published token. If the API server rejects it, the reconciliation replaces it.
func (p *Publisher) check(ctx context.Context, now time.Time) {
	err := p.options.try(ctx, p.content)
	if ctx.Err() != nil {
		return // the error does not describe the API server
	}
	p.planCheck(err)
	switch source.KindOf(err) {
	case source.Unauthorized:
		p.content = nil // check it again even if there is no other token
		p.set(func(s *Status) {
			s.answered(nil)
			s.Revoked, s.Problem = true, err
		})
	case source.Forbidden, "":
		p.set(func(s *Status) { s.answered(err) })
	default:
		p.set(func(s *Status) {
			if s.Unavailable == nil {
				s.UnavailableSince = now
			}
			s.Unavailable = err
		})
	}
}

// planCheck sets the time of the next check.
func (p *Publisher) planCheck(err error) {
	delay := early(p.options.CheckEvery, 4)
	if err != nil {
		delay = min(delay, early(retryCheckAfter, 2))
	}
	p.checkAt = time.Now().Add(delay)
}

// publish checks a kubeconfig and writes it.
func (p *Publisher) publish(
	ctx context.Context, now time.Time, token string, origin Origin, content []byte,
) error {
	err := p.options.try(ctx, content)
	kind := source.KindOf(err)
	switch {
	case kind == source.Unauthorized:
		return p.setProblem(fmt.Errorf("token not published: %w", err))
	case err != nil && kind != source.Forbidden:
		return p.setProblem(fmt.Errorf("token not published, because it cannot be checked: %w", err))
	}
	// An accepted token whose owner lacks a permission is still published: the permission may be
	// granted later, and the old token expires.
	forbidden := err
	if _, err := file.Write(p.options.Kubeconfig, content, p.options.Mode); err != nil {
		p.set(func(s *Status) { s.answered(forbidden) })
		return p.setProblem(err)
	}
	p.token, p.content = token, content
	p.planCheck(forbidden)
	p.planRenewal(now, origin)
	c := claimsOf(token)
	p.set(func(s *Status) {
		s.Origin, s.PublishedAt, s.IssuedAt, s.Expiry = origin, now, c.issued(), c.expiry()
		s.Revoked, s.Problem, s.Published = false, nil, s.Published+1
		s.answered(forbidden)
	})
	return nil
}

// planRenewal sets the time of the next token. Only lifetimes are used, because the clocks of the
// node and the API server may differ.
func (p *Publisher) planRenewal(now time.Time, origin Origin) {
	if !now.After(p.renewAt) {
		return
	}
	c := claimsOf(p.token)
	lifetime := c.expiry().Sub(c.issued())
	if origin == Projected || c.expiry().IsZero() || c.issued().IsZero() {
		lifetime = 2 * requestInterval
	}
	p.renewAt = now.Add(early(lifetime/2, 4))
}

// early returns a time that is shorter by a random part of at most d/part. Agents that have started
// together, or have waited for the same API server, would otherwise send their requests together.
func early(d time.Duration, part int64) time.Duration {
	return d - rand.N(max(1, d/time.Duration(part)))
}

// clearProblem clears a solved problem.
func (p *Publisher) clearProblem() {
	if p.Status().Problem != nil {
		p.set(func(s *Status) { s.Problem = nil })
	}
}

// setProblem reports the error of an attempt, and returns it.
func (p *Publisher) setProblem(err error) error {
	p.set(func(s *Status) {
		s.Problem = err
		if source.KindOf(err) == source.Unauthorized {
			s.Refused++
		} else {
			s.Failed++
		}
	})
	return err
}
