package ztunnel

import (
	"cmp"
	"context"
	"fmt"
	"log"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/sluice-mesh/sluice/install/ztunnel/zds"
	"github.com/sluice-mesh/sluice/install/ztunnel/ztunneltest"
	"github.com/sluice-mesh/sluice/nft/netns"
)

// reconnectDelay is the delay before the next attempt to connect.
const reconnectDelay = 20 * time.Millisecond

// Options configures a ztunnel.
type Options struct {
	// Socket is the path of the agent's socket.
	Socket string
	// Resolver is the address and port of the DNS server to forward to. It must be reachable from
	// the pods.
	Resolver string
	// Mesh contains the addresses of mesh pods on other nodes.
	Mesh []netip.Prefix
	// Synced is called once, after the agent has sent all pods. It may be nil.
	Synced func()
	// Drain is the time limit for open connections of a removed pod; 0 means 2 s.
	Drain time.Duration
}

// A ztunnel serves the pods of an agent.
type ztunnel struct {
	Options

	mu     sync.Mutex
	pods   map[string]*pod // by UID
	drains sync.WaitGroup
}

// Run connects to the agent and serves its pods until ctx is done. If the connection ends, Run
// reconnects; meanwhile pods are still served.
func Run(ctx context.Context, o Options) error {
	o.Drain = cmp.Or(o.Drain, 2*time.Second)
	z := &ztunnel{Options: o, pods: map[string]*pod{}}
	defer z.drains.Wait()
	defer z.removeExcept(nil)
	for ctx.Err() == nil {
		if client, err := ztunneltest.Dial(o.Socket, zds.Version_V1); err == nil {
			stop := context.AfterFunc(ctx, client.Close)
			err = z.receivePods(ctx, client)
			stop()
			client.Close()
			log.Printf("connection to the agent: %v", err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(reconnectDelay):
		}
	}
	return nil
}

// receivePods handles the messages of a connection to the agent until the connection ends, and
// returns the reason for its end.
func (z *ztunnel) receivePods(ctx context.Context, client *ztunneltest.Client) error {
	synced := false
	snapshot := map[string]bool{} // UIDs of the pods that the agent sends before SnapshotSent
	for {
		request, ns, err := client.Next()
		if err != nil {
			return err
		}
		failure := ""
		switch {
		case request.GetAdd() != nil:
			snapshot[request.GetAdd().GetUid()] = true
			err = z.add(ctx, request.GetAdd(), ns)
		case request.GetKeep() != nil:
			snapshot[request.GetKeep().GetUid()] = true
		case request.GetDel() != nil:
			z.remove(request.GetDel().GetUid())
		case request.GetSnapshotSent() != nil && !synced:
			synced = true
			z.removeExcept(snapshot)
			if z.Synced != nil {
				z.Synced()
				z.Synced = nil
			}
		default:
			err = fmt.Errorf("unexpected message %v", request)
		}
		_ = ns.Close()
		if err != nil {
			failure = err.Error()
		}
		if err := client.Ack(failure); err != nil {
			return err
		}
	}
}

// add starts to serve a pod, unless it is already served in the same namespace.
func (z *ztunnel) add(ctx context.Context, add *zds.AddWorkload, ns *netns.NS) error {
	if ns == nil {
		return fmt.Errorf("pod %s: no network namespace", add.GetUid())
	}
	z.mu.Lock()
	current := z.pods[add.GetUid()]
	z.mu.Unlock()
	if current != nil && current.ns.ID() == ns.ID() {
		return nil
	}
	p, err := z.serve(ctx, add.GetWorkloadInfo().GetName(), ns)
	if err != nil {
		return err
	}
	z.remove(add.GetUid())
	z.mu.Lock()
	defer z.mu.Unlock()
	z.pods[add.GetUid()] = p
	return nil
}

// remove stops serving a pod, and drains its connections in the background.
func (z *ztunnel) remove(uid string) {
	z.mu.Lock()
	p := z.pods[uid]
	delete(z.pods, uid)
	z.mu.Unlock()
	if p != nil {
		p.close()
		z.drains.Go(p.drain)
	}
}

// removeExcept removes all pods whose UID is not in uids.
func (z *ztunnel) removeExcept(uids map[string]bool) {
	z.mu.Lock()
	var removed []string
	for uid := range z.pods {
		if !uids[uid] {
			removed = append(removed, uid)
		}
	}
	z.mu.Unlock()
	for _, uid := range removed {
		z.remove(uid)
	}
}

// inMesh reports whether the address belongs to a mesh pod.
func (z *ztunnel) inMesh(a netip.Addr) bool {
	z.mu.Lock()
	defer z.mu.Unlock()
	for _, p := range z.pods {
		if slices.Contains(p.addresses, a) {
			return true
		}
	}
	return slices.ContainsFunc(z.Mesh, func(p netip.Prefix) bool { return p.Contains(a) })
}
