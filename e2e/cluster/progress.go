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

// progress logs the steps of a cluster with the time since its start.
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

func (p *progress) logf(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	fmt.Fprintf(p.log, "%s: %5.1f s  %s\n", p.name, time.Since(p.begin).Seconds(),
		fmt.Sprintf(format, args...))
}

// Write writes complete log lines of others, such as package build.
func (p *progress) Write(line []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.log.Write(line)
}

// waitUntil polls check until it returns nil, for at most limit, and logs every few seconds what it
// waits for. The error contains the last error of check.
func (p *progress) waitUntil(
	ctx context.Context, condition string, check func(ctx context.Context) error,
) error {
	ctx, cancel := context.WithTimeout(ctx, p.limit)
	defer cancel()
	logged := time.Now()
	last := errors.New("not checked")
	err := wait.PollUntilContextCancel(ctx, 50*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		// An error after the end of ctx says nothing about the cluster.
		if err := check(ctx); ctx.Err() == nil {
			last = err
		}
		if time.Since(logged) > 5*time.Second {
			logged = time.Now()
			p.logf("waits until %s: %.150v", condition, fmt.Sprint(last))
		}
		return last == nil, nil
	})
	if err != nil {
		return fmt.Errorf("wait until %s: %w: %w", condition, err, last)
	}
	p.logf("%s", condition)
	return nil
}
