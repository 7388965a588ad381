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

// reconnectTime is the time before the next attempt to connect.
const reconnectTime = 20 * time.Millisecond

// Options configure the stand-in.
type Options struct {
	// Socket is the path of the agent's socket.
	Socket string
	// Resolver is the DNS server to forward to, with port; it must be reachable from the pods.
	Resolver string
	// Mesh contains addresses of pods that other ztunnels serve.
	Mesh []netip.Prefix
	// Synced is called when all pods of the agent are served for the first time; nil is not called.
	Synced func()
	// Drain is the time that connections of a removed pod may continue; 0 means 2 s.
	Drain time.Duration
}

// A ztunnel serves pods.
type ztunnel struct {
	Options

	mu     sync.Mutex
	pods   map[string]*pod // by UID
	drains sync.WaitGroup
}

// Run connects to the agent, again and again, and serves the pods until the context ends. Pods stay
// served while there is no connection.
func Run(ctx context.Context, o Options) error {
	o.Drain = cmp.Or(o.Drain, 2*time.Second)
	z := &ztunnel{Options: o, pods: map[string]*pod{}}
	defer z.drains.Wait()
	defer z.retain(nil)
	for ctx.Err() == nil {
		if client, err := ztunneltest.Dial(o.Socket, zds.Version_V1); err == nil {
			stop := context.AfterFunc(ctx, client.Close)
			err = z.follow(ctx, client)
			stop()
			client.Close()
			log.Printf("connection to the agent: %v", err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(reconnectTime):
		}
	}
	return nil
}

// follow handles the messages of a connection.
func (z *ztunnel) follow(ctx context.Context, client *ztunneltest.Client) error {
	synced := false
	snapshot := map[string]bool{}
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
			z.retain(snapshot)
			if z.Synced != nil {
				z.Synced()
				z.Synced = nil
			}
		default:
			err = fmt.Errorf("message %v", request)
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

// add serves a pod. A pod with the same namespace is unchanged.
func (z *ztunnel) add(ctx context.Context, add *zds.AddWorkload, ns *netns.NS) error {
	if ns == nil {
		return fmt.Errorf("pod %s without a network namespace", add.GetUid())
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

// retain removes all pods without the UIDs.
func (z *ztunnel) retain(uids map[string]bool) {
	z.mu.Lock()
	var gone []string
	for uid := range z.pods {
		if !uids[uid] {
			gone = append(gone, uid)
		}
	}
	z.mu.Unlock()
	for _, uid := range gone {
		z.remove(uid)
	}
}

// inMesh reports whether a pod of the mesh has the address.
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
