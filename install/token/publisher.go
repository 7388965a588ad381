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

// Options say what is published, and where.
type Options struct {
	// Kubeconfig is the path of the plugin's kubeconfig, Mode its mode (0600).
	Kubeconfig string
	Mode       fs.FileMode
	// Options say where the API server is. TokenFile is the token that the kubelet projects into the
	// agent's pod.
	apiclient.Options
	// Lifetime is what is asked for in a TokenRequest (24 h); the API server may give less. Half of
	// it is what an outage of the API server or of the agent may last.
	Lifetime time.Duration
	// CheckEvery is how often the published token is tried again (10 min), as long as the tries
	// succeed.
	CheckEvery time.Duration
	// Namespaces says that the plugin reads namespaces too, and must have the right to.
	Namespaces bool
	// Poll looks at the files every 10 s only, and not when they change: for file systems without
	// inotify.
	Poll bool
	// Changed is called with each new status, if it is not nil, and must not wait.
	Changed func(Status)
}

const (
	defaultLifetime = 24 * time.Hour
	// defaultCheck is how often the published token is tried again, and askEvery how often it is
	// asked whether a better one than a projected one can be had.
	defaultCheck = 10 * time.Minute
	askEvery     = 10 * time.Minute
	// checkAgain is after how long a try is repeated that did not succeed: a right may have come,
	// or the API server be back. On 10,000 nodes without rights that is 2,000 connections each
	// second, less than what they make to follow their pods. It is spread by half of itself, so
	// that the nodes do not all come at once when the API server is back.
	checkAgain = 5 * time.Second
)

// A Publisher keeps the kubeconfig. Use [New]. Status may be called at any time, Run once.
type Publisher struct {
	options Options

	// These belong to the goroutine of Run.
	token   string // the one that is published
	content []byte // what was tried successfully, and is published
	renewAt time.Time
	checkAt time.Time

	again chan struct{} // has room for one; see Check

	mu     sync.Mutex
	status Status
}

// New returns a publisher that has not published anything.
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
	return &Publisher{options: o, again: make(chan struct{}, 1)}
}

// Check makes Run try the published token at once, and look for another if that is not accepted. It
// does not wait.
func (p *Publisher) Check() {
	select {
	case p.again <- struct{}{}:
	default:
	}
}

// Status returns what is published.
func (p *Publisher) Status() Status {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.status
}

// set changes the status, and tells it.
func (p *Publisher) set(change func(*Status)) {
	p.mu.Lock()
	change(&p.status)
	now := p.status
	p.mu.Unlock()
	if p.options.Changed != nil {
		p.options.Changed(now)
	}
}

// pass compares what is published with what should be, and does what is needed. It returns what is
// wrong.
func (p *Publisher) pass(ctx context.Context) error {
	now := time.Now()
	if p.content != nil {
		// Before anything else: whoever changed the file did not ask whether the API server is
		// there.
		if _, err := file.Write(p.options.Kubeconfig, p.content, p.options.Mode); err != nil {
			return p.failed(err)
		}
	}
	if p.content != nil && !now.Before(p.checkAt) {
		p.check(ctx, now)
	}
	projected, err := p.options.projected()
	if err != nil {
		return p.failed(err)
	}
	token, origin := p.token, p.Status().Origin
	if p.content == nil || now.After(p.renewAt) || origin == Projected && token != projected {
		if token, origin, err = p.next(ctx, projected); err != nil {
			return p.failed(err)
		}
	}
	content, err := p.options.kubeconfig(token)
	if err != nil {
		return p.failed(err)
	}
	if bytes.Equal(content, p.content) {
		p.plan(now, origin)
		p.settled()
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
		return "", fmt.Errorf("service account token: %s has none", o.TokenFile)
	}
	return token, nil
}

// next returns the token that should be published: a new one, or where none can be had the
// projected one. A failure that may pass is no reason to replace a token that is good.
func (p *Publisher) next(ctx context.Context, projected string) (string, Origin, error) {
	token, err := p.options.issue(ctx, projected)
	switch {
	case err == nil:
		return token, Requested, nil
	case errors.Is(err, errNotPermitted), p.content == nil:
		return projected, Projected, nil
	}
	return "", "", fmt.Errorf("request a token: %w", err)
}

// check tries the published token. If the API server does not accept it any more, the pass looks
// for another.
func (p *Publisher) check(ctx context.Context, now time.Time) {
	err := p.options.try(ctx, p.content)
	if ctx.Err() != nil {
		return // whatever the error says of the API server
	}
	p.planCheck(err)
	switch source.KindOf(err) {
	case source.Unauthorized:
		p.content = nil // so that it is tried again even if there is no other
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

// planCheck sets when the published token is tried again after a try.
func (p *Publisher) planCheck(err error) {
	pause := p.options.CheckEvery
	if err != nil {
		pause = min(pause, checkAgain-rand.N(checkAgain/2))
	}
	p.checkAt = time.Now().Add(pause)
}

// publish tries a kubeconfig and puts it in place.
func (p *Publisher) publish(ctx context.Context, now time.Time, token string, origin Origin, content []byte) error {
	err := p.options.try(ctx, content)
	kind := source.KindOf(err)
	switch {
	case kind == source.Unauthorized:
		return p.failed(fmt.Errorf("token not published: %w", err))
	case err != nil && kind != source.Forbidden:
		return p.failed(fmt.Errorf("token not published, since it cannot be tried: %w", err))
	}
	// A token that is accepted, but whose owner lacks a right, is published nevertheless: the right
	// may come, while the old token goes.
	forbidden := err
	if _, err := file.Write(p.options.Kubeconfig, content, p.options.Mode); err != nil {
		p.set(func(s *Status) { s.answered(forbidden) })
		return p.failed(err)
	}
	p.token, p.content = token, content
	p.planCheck(forbidden)
	p.plan(now, origin)
	c := claimsOf(token)
	p.set(func(s *Status) {
		s.Origin, s.PublishedAt, s.IssuedAt, s.Expiry = origin, now, c.issued(), c.expiry()
		s.Revoked, s.Problem, s.Published = false, nil, s.Published+1
		s.answered(forbidden)
	})
	return nil
}

// plan sets when the next token is due. The node's clock need not be that of the API server: only
// lifetimes count.
func (p *Publisher) plan(now time.Time, origin Origin) {
	if !now.After(p.renewAt) {
		return
	}
	c := claimsOf(p.token)
	life := c.expiry().Sub(c.issued())
	if origin == Projected || c.expiry().IsZero() || c.issued().IsZero() {
		life = 2 * askEvery
	}
	p.renewAt = now.Add(life / 2)
}

// settled takes back a problem that is over.
func (p *Publisher) settled() {
	if p.Status().Problem != nil {
		p.set(func(s *Status) { s.Problem = nil })
	}
}

// failed tells what came of an attempt, and returns it.
func (p *Publisher) failed(err error) error {
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
