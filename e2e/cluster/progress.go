package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

// A progress logs the steps of starting and using a cluster, each with the time since the call of
// newProgress.
type progress struct {
	name  string
	begin time.Time
	limit time.Duration // time limit of waitUntil
	mu    sync.Mutex
	log   io.Writer
}

func newProgress(name string, log io.Writer) *progress {
	if log == nil {
		log = io.Discard
	}
	return &progress{name: name, begin: time.Now(), limit: 2 * time.Minute, log: log}
}

// logf writes a log line.
func (p *progress) logf(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	fmt.Fprintf(p.log, "%s: %5.1f s  %s\n", p.name, time.Since(p.begin).Seconds(),
		fmt.Sprintf(format, args...))
}

// Write writes log lines of other packages, such as build. Each call must pass complete lines.
func (p *progress) Write(line []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.log.Write(line)
}

// waitUntil polls check until it returns nil, for at most limit. Every few seconds, it logs the
// condition and the last error of check. The returned error contains the last error of check.
func (p *progress) waitUntil(
	ctx context.Context, condition string, check func(ctx context.Context) error,
) error {
	ctx, cancel := context.WithTimeout(ctx, p.limit)
	defer cancel()
	const logInterval = 5 * time.Second
	lastLogged := time.Now()
	last := errors.New("not checked")
	err := wait.PollUntilContextCancel(ctx, 50*time.Millisecond, true, func(
		ctx context.Context,
	) (bool, error) {
		// After the end of ctx, check fails even if the condition holds.
		if err := check(ctx); ctx.Err() == nil {
			last = err
		}
		if time.Since(lastLogged) > logInterval {
			lastLogged = time.Now()
			p.logf("waiting until %s: %.150v", condition, fmt.Sprint(last))
		}
		return last == nil, nil
	})
	if err != nil {
		return fmt.Errorf("wait until %s: %w: %w", condition, err, last)
	}
	p.logf("%s", condition)
	return nil
}
