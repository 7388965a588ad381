package token

import (
	"context"
	"path/filepath"
	"time"

	"github.com/fsnotify/fsnotify"
)

const (
	// resync is how often everything is looked at without an event.
	resync = 10 * time.Second
	// firstPause and longestPause are between attempts that fail.
	firstPause   = time.Second
	longestPause = 30 * time.Second
)

// Run publishes and renews until the context ends. What fails is tried again, with longer and longer pauses; see
// [Publisher.Status]. The kubeconfig stays.
func (p *Publisher) Run(ctx context.Context) {
	events, stop := p.options.events()
	defer stop()
	pause := firstPause
	for {
		wait := resync
		if err := p.pass(ctx); err != nil {
			wait, pause = pause, min(2*pause, longestPause)
		} else {
			wait, pause = min(wait, time.Until(p.checkAt)), firstPause
		}
		if !p.rest(ctx, wait, events) {
			return
		}
	}
}

// rest waits for a time or an event that matters. It returns false if the context ends.
func (p *Publisher) rest(ctx context.Context, wait time.Duration, events <-chan fsnotify.Event) bool {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return false
		case <-timer.C:
			return true
		case <-p.again:
			p.checkAt = time.Time{}
			return true
		case e, open := <-events:
			if !open {
				events = nil // the timer is enough
			} else if p.options.matters(e) {
				return true
			}
		}
	}
}

// events watches directories, since the files in them are replaced. Where that cannot be done, the timer has to do.
func (o *Options) events() (<-chan fsnotify.Event, func()) {
	if o.Poll {
		return nil, func() {}
	}
	w, err := fsnotify.NewWatcher()
	if err != nil {
		return nil, func() {}
	}
	for _, path := range []string{o.TokenFile, o.CAFile, o.Kubeconfig} {
		if path != "" {
			_ = w.Add(filepath.Dir(path))
		}
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range w.Errors { // nobody may wait for these to be read
			continue
		}
	}()
	return w.Events, func() {
		_ = w.Close()
		<-done
	}
}

// matters reports whether an event is about our files. The plugin's log is in the directory of the kubeconfig.
func (o *Options) matters(e fsnotify.Event) bool {
	return filepath.Dir(e.Name) != filepath.Dir(o.Kubeconfig) || filepath.Base(e.Name) == filepath.Base(o.Kubeconfig)
}
