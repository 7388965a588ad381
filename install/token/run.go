package token

import (
	"context"
	"path/filepath"
	"time"

	"github.com/sluice-mesh/sluice/install/dirwatch"
)

const (
	// resync is the interval of reconciliations without an event.
	resync = 10 * time.Second
	// initialBackoff and maxBackoff are the limits of the delay after a failed attempt, which
	// is shortened by up to half, at random.
	initialBackoff = time.Second
	maxBackoff     = 30 * time.Second
	// eventGap is the minimum time between two reconciliations because of changed files. The
	// plugin's log, which changes with each ADD, is in the same directory.
	eventGap = 100 * time.Millisecond
)

// Run publishes and renews the kubeconfig until the context ends. Failed attempts are repeated with
// increasing delays; see [Publisher.Status]. The kubeconfig remains.
func (p *Publisher) Run(ctx context.Context) {
	changed := make(chan struct{}, 1)
	watch := p.options.watch(changed)
	defer watch.Close()
	backoff := initialBackoff
	for {
		if !p.options.Poll {
			// Renew before the reconciliation, so that no change is missed. If nothing can be
			// watched, the timer is sufficient.
			_ = watch.Renew(p.options.TokenFile, p.options.CAFile)
		}
		wait := resync
		if err := p.reconcile(ctx); err != nil {
			wait, backoff = early(backoff, 2), min(2*backoff, maxBackoff)
		} else {
			wait, backoff = min(wait, time.Until(p.checkAt)), initialBackoff
		}
		if !p.sleep(ctx, wait, changed) {
			return
		}
	}
}

// sleep waits for a timeout, a request or a changed file, and returns true. It returns false when
// ctx ends.
func (p *Publisher) sleep(ctx context.Context, wait time.Duration, changed <-chan struct{}) bool {
	timer, gap := time.NewTimer(wait), time.NewTimer(eventGap)
	defer timer.Stop()
	defer gap.Stop()
	var events <-chan struct{}
	for {
		select {
		case <-ctx.Done():
			return false
		case <-timer.C:
			return true
		case <-p.checkRequested:
			p.checkAt = time.Time{}
			return true
		case <-gap.C:
			events = changed
		case <-events:
			return true
		}
	}
}

// watch returns a watch of the directories of the files, because files are replaced and not written
// in place.
func (o *Options) watch(changed chan<- struct{}) *dirwatch.Watch {
	var dirs []string
	for _, path := range []string{o.TokenFile, o.CAFile, o.Kubeconfig} {
		if path != "" {
			dirs = append(dirs, filepath.Dir(path))
		}
	}
	return dirwatch.New(func() {
		select {
		case changed <- struct{}{}:
		default:
		}
	}, dirs...)
}
