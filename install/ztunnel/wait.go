package ztunnel

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/sluice-mesh/sluice/install/notify"
)

var (
	// ErrNotConnected is wrapped by the error of [Server.Add] if no ztunnel is connected.
	ErrNotConnected = errors.New("no ztunnel is connected")
	// ErrRefused is wrapped by the error of [Server.Add] and [Server.Remove] if ztunnel
	// acknowledged the message with an error.
	ErrRefused = errors.New("ztunnel refused")

	errNoUID = errors.New("pod has no UID (metadata.uid is required)")
)

// A waiter is a call of Add or Remove that waits for the acknowledgement of a pod.
type waiter struct {
	uid  string
	wake notify.Channel
}

// wait returns nil when done returns true. It returns an error when done returns one, or when ctx
// ends. The caller holds s.mu; wait releases s.mu while it waits, and holds it when it calls done.
func (s *Server) wait(
	ctx context.Context, pod, uid string, done func() (bool, error),
) error {
	start := time.Now()
	w := &waiter{uid: uid, wake: notify.New()}
	s.waiters[w] = struct{}{}
	defer delete(s.waiters, w)
	for {
		ok, err := done()
		if err != nil {
			return fmt.Errorf("pod %s: %w", pod, err)
		}
		if ok {
			return nil
		}
		s.mu.Unlock()
		select {
		case <-w.wake:
		case <-ctx.Done():
			err = ctx.Err()
		}
		s.mu.Lock()
		if err != nil {
			return fmt.Errorf("pod %s: waited %s for ztunnel: %s: %w",
				pod, round(time.Since(start)), s.describePending(uid), err)
		}
	}
}

// notify wakes the waiters for a pod, or all waiters if the UID is empty.
func (s *Server) notify(uid string) {
	for w := range s.waiters {
		if uid == "" || w.uid == uid {
			w.wake.Notify()
		}
	}
}

// isAdded reports whether a ztunnel has acknowledged the pod. It returns an error if no
// acknowledgement will follow: the pod was removed or replaced, no ztunnel is connected, or each
// has refused it.
func (s *Server) isAdded(served *servedPod) (bool, error) {
	if served.removed {
		return false, errors.New("removed or replaced before ztunnel acknowledged it")
	}
	if len(s.connections) == 0 {
		if !s.isRestored() {
			return false, fmt.Errorf("%w: the pods of the node are not known yet", ErrNotConnected)
		}
		return false, ErrNotConnected
	}
	for c := range s.connections {
		if c.reply(served) == acknowledged {
			return true, nil
		}
	}
	return false, s.refusal(served)
}

// refusal returns an error if ztunnels are connected and each of them has refused the pod.
func (s *Server) refusal(served *servedPod) error {
	var refusals []string
	for _, c := range s.sortedConnections() {
		if c.reply(served) != refused {
			return nil
		}
		refusals = append(refusals, c.results[served.UID].err)
	}
	return refusalError(refusals)
}

// refusalError returns an error that wraps ErrRefused, or nil if there are no refusals.
func refusalError(refusals []string) error {
	if len(refusals) == 0 {
		return nil
	}
	return fmt.Errorf("%w: %s", ErrRefused, strings.Join(refusals, "; "))
}

// isDeleted reports whether each ztunnel has acknowledged the removal. Once none is pending, it
// returns an error if any has refused it.
func (s *Server) isDeleted(uid string) (bool, error) {
	var refusals []string
	for _, c := range s.sortedConnections() {
		if c.isPending(uid) {
			return false, nil
		}
		if r := c.results[uid]; r.pod == nil && r.err != "" {
			refusals = append(refusals, r.err)
		}
	}
	err := refusalError(refusals)
	return err == nil, err
}

// describePending describes the connections that have not acknowledged a pod.
func (s *Server) describePending(uid string) string {
	var texts []string
	for _, c := range s.sortedConnections() {
		if c.isPending(uid) {
			texts = append(texts, c.describePending())
		}
	}
	if len(texts) == 0 {
		return "all messages are acknowledged"
	}
	return strings.Join(texts, "; ")
}

// sortedConnections returns the connections that have sent a hello, the oldest first.
func (s *Server) sortedConnections() []*connection {
	return slices.SortedFunc(maps.Keys(s.connections), func(a, b *connection) int {
		return cmp.Compare(a.id, b.id)
	})
}

// round rounds a duration for errors.
func round(d time.Duration) time.Duration {
	if d > time.Second {
		return d.Round(100 * time.Millisecond)
	}
	return d.Round(time.Millisecond)
}
