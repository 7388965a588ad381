package token

import (
	"context"
	"path/filepath"
	"time"

	"github.com/sluice-mesh/sluice/install/dirwatch"
	"github.com/sluice-mesh/sluice/install/notify"
)

const (
	// resyncInterval is the interval of reconciliations without an event.
	resyncInterval = 10 * time.Second
	// The delay after a failed attempt doubles from initialBackoff to maxBackoff, and is shorter by
	// a random part of at most a half.
	initialBackoff = time.Second
	maxBackoff     = 30 * time.Second
	// minEventInterval is the minimum time between two reconciliations after changes of the
	// directories. The kubeconfig's directory may change often, because it also contains the
	// plugin's log, which changes with each ADD.
	minEventInterval = 100 * time.Millisecond
)

// Run publishes and renews the kubeconfig until the context ends. Failed attempts are repeated with
// increasing delays; see [Publisher.Status]. The kubeconfig remains after Run.
func (p *Publisher) Run(ctx context.Context) {
	changed := notify.New()
	watch := p.options.watch(changed)
	defer watch.Close()
	backoff := initialBackoff
	for {
		if !p.options.Poll {
			// Renew the watch before the reconciliation, so that no change is missed. The error is
			// ignored, because the files are also checked every 10 s.
			_ = watch.Renew(p.options.TokenFile, p.options.CAFile)
		}
		wait := resyncInterval
		if err := p.reconcile(ctx); err != nil {
			wait, backoff = shorten(backoff, 2), min(2*backoff, maxBackoff)
		} else {
			wait, backoff = min(wait, time.Until(p.checkAt)), initialBackoff
		}
		if !p.sleep(ctx, wait, changed) {
			return
		}
	}
}

// sleep waits for a timeout, a call of Check or a changed file, and returns true. It returns false
// when ctx ends.
func (p *Publisher) sleep(ctx context.Context, wait time.Duration, changed <-chan struct{}) bool {
	timeout, interval := time.After(wait), time.After(minEventInterval)
	var events <-chan struct{} // nil until minEventInterval has elapsed
	for {
		select {
		case <-ctx.Done():
			return false
		case <-timeout:
			return true
		case <-p.checkRequested:
			p.checkAt = time.Time{}
			return true
		case <-interval:
			events = changed
		case <-events:
			return true
		}
	}
}

// watch returns a watch of the directories of the files, because files are replaced and not written
// in place.
func (o *Options) watch(changed notify.Channel) *dirwatch.Watch {
	var dirs []string
	for _, path := range []string{o.TokenFile, o.CAFile, o.Kubeconfig} {
		if path != "" {
			dirs = append(dirs, filepath.Dir(path))
		}
	}
	return dirwatch.New(changed.Notify, dirs...)
}
