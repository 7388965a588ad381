package token

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/sluice-mesh/sluice/install/apiclient"
	"github.com/sluice-mesh/sluice/install/notify"
	"github.com/sluice-mesh/sluice/plugin/file"
	"github.com/sluice-mesh/sluice/plugin/source"
)

// Options are the options of a [Publisher].
type Options struct {
	// Kubeconfig is the path of the plugin's kubeconfig.
	Kubeconfig string
	// Mode is the mode of the kubeconfig; 0600 if it is 0.
	Mode fs.FileMode
	// Options contains the address of the API server. TokenFile is the path of the token that the
	// kubelet projects into the agent's pod.
	apiclient.Options
	// Lifetime is the requested lifetime of a token; 24 h if it is 0. The API server may assign a
	// shorter one. When the agent exits, or the API server stops issuing tokens, the requested
	// token in the kubeconfig remains valid for at least half of its lifetime.
	Lifetime time.Duration
	// CheckInterval is the longest interval for checking the published token while the checks
	// succeed; 10 min if it is 0. Each interval is shortened by a random part of at most a quarter.
	CheckInterval time.Duration
	// Namespaces is set if the plugin also reads namespaces, which needs a further permission.
	Namespaces bool
	// Poll disables the watch of the token, the certificate authority and the kubeconfig. These
	// files are then read only at intervals of at most 10 s (30 s after failures). It is for file
	// systems without inotify.
	Poll bool
	// Changed, unless nil, is called with each new status, and must not block.
	Changed func(Status)
}

const (
	defaultLifetime = 24 * time.Hour
	defaultCheck    = 10 * time.Minute
	// requestInterval is the longest interval for requesting a token while the published token is
	// the projected one, or has an unknown lifetime. It is shortened by a random part of at most a
	// quarter.
	requestInterval = 10 * time.Minute
	// retryCheckAfter is the longest delay between a failed check and the next one. It is short,
	// because the permission may have been granted, or the API server may be available again.
	// Delays are shorter by a random part of at most a half. On 10,000 nodes without permissions
	// the checks make about 2,700 connections per second. The watches of pods make more.
	retryCheckAfter = 5 * time.Second
)

// A Publisher maintains the kubeconfig. Use [New]. Run may be called once. The other methods are
// safe for concurrent use.
type Publisher struct {
	options Options

	// Only the goroutine of Run uses these fields.
	token   string // published token
	content []byte // published kubeconfig; nil if there is none or its token was rejected
	renewAt time.Time
	checkAt time.Time

	checkRequested notify.Channel // see Check

	mu     sync.Mutex
	status Status
}

// New returns a publisher that has not published a token.
func New(o Options) *Publisher {
	o.Mode = cmp.Or(o.Mode, 0o600)
	o.Lifetime = cmp.Or(o.Lifetime, defaultLifetime)
	o.CheckInterval = cmp.Or(o.CheckInterval, defaultCheck)
	return &Publisher{options: o, checkRequested: notify.New()}
}

// Check makes Run check the published token immediately, and replace it if it is rejected. It does
// not block.
func (p *Publisher) Check() { p.checkRequested.Notify() }

// Status returns the current status.
func (p *Publisher) Status() Status {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.status
}

// setStatus changes and reports the status.
func (p *Publisher) setStatus(change func(*Status)) {
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
		// Restore a changed file first, independently of the API server.
		if _, err := file.Write(p.options.Kubeconfig, p.content, p.options.Mode); err != nil {
			return p.setProblem(err)
		}
	}
	if p.content != nil && !now.Before(p.checkAt) {
		p.check(ctx, now)
	}
	projected, err := p.options.readProjected()
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
		p.scheduleRenewal(now, origin)
		if p.Status().Problem != nil {
			p.setStatus(func(s *Status) { s.setProblem(nil, time.Time{}) })
		}
		return nil
	}
	return p.publish(ctx, now, token, origin, content)
}

// readProjected reads the token of the agent's pod.
func (o *Options) readProjected() (string, error) {
	token, err := apiclient.ReadToken(o.TokenFile)
	if err != nil {
		return "", err
	}
	if !isWellFormed(token) {
		return "", fmt.Errorf("service account token: %s contains no valid token", o.TokenFile)
	}
	return token, nil
}

// nextToken returns the token to publish: a requested token, or the projected token if requests are
// not permitted. After any other failure of the request it returns the projected token in two
// cases: no token is published; or the published one is an earlier projected token, which expires
// soon, and the API server has not rejected the current one. Otherwise it returns an error, so that
// the published token stays.
func (p *Publisher) nextToken(ctx context.Context, projected string) (string, Origin, error) {
	token, err := p.options.requestToken(ctx, projected)
	switch {
	case err == nil:
		return token, Requested, nil
	case errors.Is(err, errNotPermitted), p.content == nil,
		source.KindOf(err) != source.Unauthorized && p.Status().Origin == Projected &&
			p.token != projected:
		return projected, Projected, nil
	}
	return "", "", fmt.Errorf("request a token: %w", err)
}

// check checks the published token. If the API server rejects the token, check sets p.content to
// nil, so that the reconciliation publishes a token again.
func (p *Publisher) check(ctx context.Context, now time.Time) {
	err := p.options.verify(ctx, p.content)
	if ctx.Err() != nil {
		return // the check was interrupted
	}
	p.scheduleCheck(err)
	switch source.KindOf(err) {
	case source.Unauthorized:
		p.content = nil // the reconciliation then publishes a token, even if it is the rejected one
		p.setStatus(func(s *Status) {
			s.setAvailable(nil)
			s.Revoked = true
			s.setProblem(err, now)
		})
	case source.Forbidden, "":
		p.setStatus(func(s *Status) { s.setAvailable(err) })
	default:
		p.setStatus(func(s *Status) {
			if s.Unavailable == nil {
				s.UnavailableSince = now
			}
			s.Unavailable = err
		})
	}
}

// scheduleCheck sets the time of the next check. err is the result of the last one.
func (p *Publisher) scheduleCheck(err error) {
	delay := shorten(p.options.CheckInterval, 4)
	if err != nil {
		delay = min(delay, shorten(retryCheckAfter, 2))
	}
	p.checkAt = time.Now().Add(delay)
}

// publish checks a kubeconfig, and writes it if the API server accepts the token.
func (p *Publisher) publish(
	ctx context.Context, now time.Time, token string, origin Origin, content []byte,
) error {
	err := p.options.verify(ctx, content)
	kind := source.KindOf(err)
	switch {
	case kind == source.Unauthorized:
		return p.setProblem(fmt.Errorf("token not published: %w", err))
	case err != nil && kind != source.Forbidden:
		return p.setProblem(
			fmt.Errorf("token not published, because it cannot be checked: %w", err))
	}
	// An accepted token is published even if its owner lacks a permission: the permission may be
	// granted later, and the old token expires.
	forbidden := err
	if _, err := file.Write(p.options.Kubeconfig, content, p.options.Mode); err != nil {
		p.setStatus(func(s *Status) { s.setAvailable(forbidden) })
		return p.setProblem(err)
	}
	isNew := token != p.token
	if isNew {
		p.renewAt = time.Time{} // it was the renewal time of the earlier token
	}
	p.token, p.content = token, content
	p.scheduleCheck(forbidden)
	p.scheduleRenewal(now, origin)
	c := source.ParseToken(token)
	p.setStatus(func(s *Status) {
		if isNew {
			s.PublishedAt = now
		}
		s.Origin, s.IssuedAt, s.Expiry = origin, c.IssuedAt, c.Expiry
		s.Revoked, s.Published = false, s.Published+1
		s.setProblem(nil, time.Time{})
		s.setAvailable(forbidden)
	})
	return nil
}

// scheduleRenewal sets the time of the next renewal, unless it is in the future already. It uses
// the lifetime of the token, not its expiry, because the clocks of the node and the API server may
// differ.
func (p *Publisher) scheduleRenewal(now time.Time, origin Origin) {
	if !now.After(p.renewAt) {
		return
	}
	c := source.ParseToken(p.token)
	lifetime := c.Expiry.Sub(c.IssuedAt)
	if origin == Projected || c.Expiry.IsZero() || c.IssuedAt.IsZero() {
		lifetime = 2 * requestInterval
	}
	p.renewAt = now.Add(shorten(lifetime/2, 4))
}

// shorten returns d minus a random duration of at most d/divisor. Otherwise agents that have
// started at the same time, or have waited for the same API server, would send their requests at
// the same time.
func shorten(d time.Duration, divisor int64) time.Duration {
	return d - rand.N(max(1, d/time.Duration(divisor)))
}

// setProblem counts and reports the error of an attempt, and returns it.
func (p *Publisher) setProblem(err error) error {
	p.setStatus(func(s *Status) {
		s.setProblem(err, time.Now())
		if source.KindOf(err) == source.Unauthorized {
			s.Rejected++
		} else {
			s.Failed++
		}
	})
	return err
}
