package ztunneltest

import (
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/sluice-mesh/sluice/install/ztunnel/zds"
	"github.com/sluice-mesh/sluice/nft/netns"
)

// A Ztunnel acknowledges all messages, and records them and the pods that it should serve.
type Ztunnel struct {
	// Reply returns the error with which a message is acknowledged, empty for success; it may
	// block. Nil means success.
	Reply func(*zds.Request) string

	client *Client
	done   chan struct{}

	mu       sync.Mutex
	messages []string // in the form of [Describe]
	pods     map[string]netns.ID
	changed  chan struct{}
}

// Start returns a Ztunnel that is connected to the socket until the test ends. It waits up to 30 s
// for the socket.
func Start(t testing.TB, path string, reply func(*zds.Request) string) *Ztunnel {
	t.Helper()
	z := &Ztunnel{
		Reply: reply, done: make(chan struct{}), pods: map[string]netns.ID{},
		changed: make(chan struct{}),
	}
	deadline := time.Now().Add(30 * time.Second)
	for z.client == nil {
		client, err := Dial(path, zds.Version_V1)
		if err != nil && time.Now().After(deadline) {
			t.Fatalf("connect to the server at %s: %v", path, err)
		}
		if z.client = client; client == nil {
			time.Sleep(time.Millisecond)
		}
	}
	go z.run()
	t.Cleanup(z.Stop)
	return z
}

// Stop closes the connection.
func (z *Ztunnel) Stop() {
	z.client.Close()
	<-z.done
}

func (z *Ztunnel) run() {
	defer close(z.done)
	for {
		request, ns, err := z.client.Next()
		if err != nil {
			return
		}
		failure := ""
		if z.Reply != nil {
			failure = z.Reply(request)
		}
		z.record(request, ns, failure == "")
		_ = ns.Close()
		if z.client.Ack(failure) != nil {
			return
		}
	}
}

func (z *Ztunnel) record(r *zds.Request, ns *netns.NS, success bool) {
	z.mu.Lock()
	defer z.mu.Unlock()
	z.messages = append(z.messages, Describe(r))
	switch {
	case r.GetAdd() != nil && success:
		z.pods[r.GetAdd().GetUid()] = ns.ID()
	case r.GetDel() != nil && success:
		delete(z.pods, r.GetDel().GetUid())
	}
	close(z.changed)
	z.changed = make(chan struct{})
}

// Describe returns the kind of a message and its UID: add UID, keep UID, del UID, or snapshot.
func Describe(r *zds.Request) string {
	switch {
	case r.GetAdd() != nil:
		return "add " + r.GetAdd().GetUid()
	case r.GetKeep() != nil:
		return "keep " + r.GetKeep().GetUid()
	case r.GetDel() != nil:
		return "del " + r.GetDel().GetUid()
	case r.GetSnapshotSent() != nil:
		return "snapshot"
	}
	return fmt.Sprintf("unknown %v", r)
}

// Messages returns the messages received so far, in the form of [Describe].
func (z *Ztunnel) Messages() []string {
	z.mu.Lock()
	defer z.mu.Unlock()
	return slices.Clone(z.messages)
}

// Pods returns the network namespaces of the pods that were added and not removed, by UID. Messages
// that were acknowledged with an error do not count.
func (z *Ztunnel) Pods() map[string]netns.ID {
	z.mu.Lock()
	defer z.mu.Unlock()
	return maps.Clone(z.pods)
}

// Wait waits until the message, in the form of [Describe], was received. It fails the test after
// 30 s, or if the connection ends.
func (z *Ztunnel) Wait(t testing.TB, message string) {
	t.Helper()
	deadline := time.After(30 * time.Second)
	for {
		z.mu.Lock()
		found, changed := slices.Contains(z.messages, message), z.changed
		z.mu.Unlock()
		if found {
			return
		}
		select {
		case <-changed:
		case <-z.done:
			t.Fatalf("the connection ended before message %q was received; received: %q", message,
				z.Messages())
		case <-deadline:
			t.Fatalf("message %q was not received; received: %q", message, z.Messages())
		}
	}
}
