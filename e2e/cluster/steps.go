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

// steps tells a log what was reached, and when.
type steps struct {
	name  string
	begin time.Time
	limit time.Duration // of a step
	mu    sync.Mutex
	log   io.Writer
}

func newSteps(name string, log io.Writer) *steps {
	if log == nil {
		log = io.Discard
	}
	return &steps{name: name, begin: time.Now(), limit: 2 * time.Minute, log: log}
}

func (s *steps) done(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	fmt.Fprintf(s.log, "%s: %5.1f s  %s\n", s.name, time.Since(s.begin).Seconds(),
		fmt.Sprintf(format, args...))
}

// Write is for those who write lines themselves.
func (s *steps) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.log.Write(p)
}

// reach waits until check says nil, for as long as a slow machine could take, and tells every few
// seconds what it waits for. The error has the last that check said.
func (s *steps) reach(
	ctx context.Context, what string, check func(ctx context.Context) error,
) error {
	ctx, cancel := context.WithTimeout(ctx, s.limit)
	defer cancel()
	told := time.Now()
	last := errors.New("not looked")
	err := wait.PollUntilContextCancel(ctx, 50*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		// The one that the end of ctx cut short says nothing about the cluster.
		if now := check(ctx); ctx.Err() == nil {
			last = now
		}
		if time.Since(told) > 5*time.Second {
			told = time.Now()
			s.done("waits until %s: %.150v", what, fmt.Sprint(last))
		}
		return last == nil, nil
	})
	if err != nil {
		return fmt.Errorf("wait until %s: %w: %w", what, err, last)
	}
	s.done("%s", what)
	return nil
}
