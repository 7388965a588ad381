package ztunnel_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/sluice-mesh/sluice/install/ztunnel"
	"github.com/sluice-mesh/sluice/install/ztunnel/zds"
	"github.com/sluice-mesh/sluice/install/ztunnel/ztunneltest"
	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
	"github.com/sluice-mesh/sluice/rules/rulestest"
)

// reconnectingZtunnel is a ztunnel that connects again when its connection ends. Until it has
// received a new snapshot, it keeps its pods.
type reconnectingZtunnel struct {
	mu   sync.Mutex
	pods map[string]netns.ID
	stop chan struct{}
	done sync.WaitGroup
}

func (z *reconnectingZtunnel) run(path string) {
	for {
		if c, err := ztunneltest.Dial(path, zds.Version_V1); err == nil {
			stop := make(chan struct{})
			z.done.Go(func() {
				select {
				case <-z.stop:
				case <-stop:
				}
				c.Close()
			})
			z.serve(c)
			close(stop)
		}
		select {
		case <-z.stop:
			return
		case <-time.After(time.Millisecond):
		}
	}
}

func (z *reconnectingZtunnel) serve(c *ztunneltest.Client) {
	snapshot := map[string]netns.ID{}
	synced := false
	for {
		r, ns, err := c.Next()
		if err != nil {
			return
		}
		z.mu.Lock()
		switch {
		case r.GetAdd() != nil:
			z.pods[r.GetAdd().GetUid()] = ns.ID()
			snapshot[r.GetAdd().GetUid()] = ns.ID()
		case r.GetKeep() != nil:
			if id, found := z.pods[r.GetKeep().GetUid()]; found {
				snapshot[r.GetKeep().GetUid()] = id
			}
		case r.GetDel() != nil:
			delete(z.pods, r.GetDel().GetUid())
		case !synced:
			synced = true
			z.pods = snapshot
			snapshot = map[string]netns.ID{}
		}
		z.mu.Unlock()
		_ = ns.Close()
		if c.Ack("") != nil {
			return
		}
	}
}

func (z *reconnectingZtunnel) has(p ztunnel.Pod) bool {
	z.mu.Lock()
	defer z.mu.Unlock()
	return z.pods[p.UID] == p.Netns.ID()
}

// TestTakeoverLosesNoPod adds pods while the new agent replaces the socket during a rolling update.
// Each pod for which Add has succeeded, at either agent, remains at ztunnel.
func TestTakeoverLosesNoPod(t *testing.T) {
	path := socket(t)
	var current atomic.Pointer[testEnv]
	current.Store(start(t, path))
	current.Load().Restore(nil)
	z := &reconnectingZtunnel{pods: map[string]netns.ID{}, stop: make(chan struct{})}
	z.done.Go(func() { z.run(path) })
	ns := []*netns.NS{pod(t, "0").Netns, pod(t, "1").Netns}

	// A server holds a descriptor for each pod, and a replacement takes long on a busy machine.
	const maxAdded = 400
	var mu sync.Mutex // guards added, which the next server restores, and limit
	var added []ztunnel.Pod
	limit := 0
	ctx, cancel := context.WithCancel(t.Context())
	var adders sync.WaitGroup
	for i := range 4 {
		adders.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				p := ztunnel.Pod{UID: fmt.Sprintf("%d-%d", i, n), Netns: ns[n%2]}
				for {
					mu.Lock()
					err := ztunnel.ErrNotConnected
					if len(added) < limit {
						err = current.Load().Add(context.Background(), p)
					}
					if err == nil {
						added = append(added, p)
					}
					mu.Unlock()
					if err == nil || ctx.Err() != nil {
						break
					}
					if !errors.Is(err, ztunnel.ErrNotConnected) {
						t.Error(err)
						return
					}
					time.Sleep(time.Millisecond)
				}
			}
		})
	}
	// allow permits maxAdded more pods, and returns the number of pods that were added so far.
	allow := func() int {
		mu.Lock()
		defer mu.Unlock()
		limit = len(added) + maxAdded
		return len(added)
	}
	waitForPods := func() {
		before := allow()
		rulestest.Eventually(t, "pods are added", func() bool {
			mu.Lock()
			defer mu.Unlock()
			return len(added) >= before+20
		})
	}
	for range 5 {
		waitForPods()
		allow() // so that pods are added during the replacement
		next := start(t, path)
		mu.Lock()
		next.Restore(added)
		old := current.Swap(next)
		mu.Unlock()
		old.stop()
	}
	waitForPods()
	cancel()
	adders.Wait()
	for _, p := range added {
		if !z.has(p) {
			t.Errorf("ztunnel does not have pod %s", p.UID)
		}
	}
	close(z.stop)
	z.done.Wait()
}

// TestConcurrentChangesLoseNoPod adds, replaces and removes pods while ztunnels connect and
// disconnect. In the end each ztunnel has exactly the pods of the state, and no descriptor remains
// open.
func TestConcurrentChangesLoseNoPod(t *testing.T) {
	before := netnstest.Descriptors(t)
	func() {
		env := start(t, socket(t))
		env.Restore(nil)
		ns := []*netns.NS{pod(t, "0").Netns, pod(t, "1").Netns, pod(t, "2").Netns}
		steady := ztunneltest.Start(t, env.path, nil)
		steady.Wait(t, "snapshot")
		ctx, cancel := context.WithCancel(t.Context())
		var group sync.WaitGroup
		for range 2 {
			group.Go(func() {
				for ctx.Err() == nil {
					c, err := ztunneltest.Dial(env.path, zds.Version_V1)
					if err != nil {
						t.Error(err)
						return
					}
					for range 10 { // messages; then the client closes the connection
						_, ns, err := c.Next()
						if err != nil {
							break
						}
						_ = ns.Close()
						_ = c.Ack("")
					}
					c.Close()
				}
			})
		}
		var adders sync.WaitGroup
		for i := range 4 {
			adders.Go(func() {
				for n := range 100 {
					p := ztunnel.Pod{UID: fmt.Sprintf("%d-%d", i, n%5), Netns: ns[n%3]}
					if err := env.Add(context.Background(), p); err != nil {
						t.Error(err)
					}
					if n%4 == 0 {
						if err := env.Remove(context.Background(), p.UID); err != nil {
							t.Error(err)
						}
					}
				}
			})
		}
		adders.Wait()
		cancel()
		group.Wait()
		env.waitConnected(t, 1, 1)
		last := ztunneltest.Start(t, env.path, nil)
		last.Wait(t, "snapshot")
		for _, z := range []*ztunneltest.Ztunnel{steady, last} {
			rulestest.Eventually(t, "the ztunnel has the pods of the state", func() bool {
				pods := z.Pods()
				for _, p := range env.State().Pods {
					if pods[p.UID] != p.Netns {
						return false
					}
				}
				return len(pods) == len(env.State().Pods)
			})
		}
		for _, p := range env.State().Pods {
			if err := env.Remove(t.Context(), p.UID); err != nil {
				t.Error(err)
			}
		}
		if len(steady.Pods())+len(last.Pods()) > 0 {
			t.Errorf("the ztunnels still have the pods %v and %v, want none", steady.Pods(), last.Pods())
		}
		steady.Stop()
		last.Stop()
		env.stop()
		for _, n := range ns {
			_ = n.Close()
		}
	}()
	if after := netnstest.Descriptors(t); after > before {
		t.Errorf("%d descriptors are open at the end, want at most %d as before", after, before)
	}
}

// TestDescriptorOfARemovedPodIsClosed checks that the server holds one descriptor for a pod, and
// closes the descriptor when the pod's namespace is replaced or the pod is removed.
func TestDescriptorOfARemovedPodIsClosed(t *testing.T) {
	env := start(t, socket(t))
	env.Restore(nil)
	z := ztunneltest.Start(t, env.path, nil)
	z.Wait(t, "snapshot")
	p, other := pod(t, "a"), pod(t, "b")
	before := netnstest.Descriptors(t)
	for _, ns := range []*netns.NS{p.Netns, other.Netns} {
		p.Netns = ns
		if err := env.Add(t.Context(), p); err != nil {
			t.Fatal(err)
		}
		rulestest.Eventually(t, "one descriptor is open", func() bool { return netnstest.Descriptors(t) == before+1 })
	}
	if err := env.Remove(t.Context(), p.UID); err != nil {
		t.Fatal(err)
	}
	rulestest.Eventually(t, "the descriptor is closed", func() bool { return netnstest.Descriptors(t) == before })
}

func TestOnlyRootMayConnect(t *testing.T) {
	env := start(t, socket(t))
	env.Restore(nil)
	var c *ztunneltest.Client
	err := netnstest.OnNewThread(func() (err error) {
		if err := netnstest.ChangeUser(65534); err != nil {
			return err
		}
		c, err = ztunneltest.Dial(env.path, zds.Version_V1)
		return err
	})
	// The server may close the connection before the first message is written.
	if err != nil && !errors.Is(err, syscall.EPIPE) {
		t.Error(err)
	}
	if c != nil {
		defer c.Close()
		if _, _, err := c.Next(); err == nil {
			t.Error("the server sent a message to another user than root")
		}
	}
	entry := env.waitLog(t, "error on the socket of ztunnel")
	if text := fmt.Sprint(entry.ContextMap()["error"]); text != "socket "+env.path+
		": connection from uid 65534 rejected: only root may connect" {
		t.Errorf("error %q, want one about uid 65534", text)
	}
}

// TestServeEndsWithItsContext checks that the end of Serve closes connections in each state.
func TestServeEndsWithItsContext(t *testing.T) {
	env := start(t, socket(t))
	unready, err := ztunneltest.Connect(env.path) // before Restore
	if err != nil {
		t.Fatal(err)
	}
	defer unready.Close()
	env.stop()
	env = start(t, env.path)
	env.Restore([]ztunnel.Pod{pod(t, "a")})
	silent, err := ztunneltest.Connect(env.path)
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	unacknowledged := env.dial(t)
	expectUnacknowledged(t, unacknowledged, "add uid-a")
	results := make(chan error)
	go func() { results <- env.Add(context.Background(), pod(t, "b")) }()
	rulestest.Eventually(t, "the message waits", func() bool { return env.State().Connections[0].Queued > 0 })
	env.stop()
	if err := <-results; !errors.Is(err, ztunnel.ErrNotConnected) {
		t.Errorf("Add: error %v, want ErrNotConnected", err)
	}
	if _, err := os.Lstat(env.path); err != nil {
		t.Errorf("the socket after Serve: error %v, want the socket to remain for the next agent", err)
	}
	if _, err := net.Dial("unixpacket", env.path); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("a new connection: error %v, want ECONNREFUSED", err)
	}
	if env.State().Listening {
		t.Error("the state says that the server still listens")
	}
}
