package watch

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/nft/socket"
)

// A Watcher reports changes in the namespaces that were added to it. Its methods are safe for
// concurrent use, except that [Watcher.Next] must be called by one goroutine at a time.
type Watcher struct {
	ids     *idClient
	sockets []socket.Socket
	readers sync.WaitGroup
	closed  chan struct{}
	ownNS   netns.ID      // the namespace of the sockets
	wake    chan struct{} // wakes Next; has capacity 1

	mu sync.Mutex // also held while ids is used
	// namespaces maps namespace ids to the added namespaces.
	namespaces map[int32]netns.ID
	pending    pending
	err        error // of the readers
}

// Events provides the events of the namespaces that were added; implemented by [Watcher].
type Events interface {
	Add(*netns.NS) error
	Next(ctx context.Context) (Event, error)
	Close() error
}

// Subscribe is like [Open], and returns an interface.
func Subscribe() (Events, error) {
	w, err := Open()
	if err != nil {
		return nil, err // an interface must not contain a nil *Watcher
	}
	return w, nil
}

// Open starts to listen in the network namespace of the calling thread. If a capability is missing,
// the error names it and wraps [unix.EPERM]. If the kernel has no nf_tables, the error wraps
// [unix.EPROTONOSUPPORT].
func Open() (*Watcher, error) {
	w := &Watcher{
		ownNS:      (*netns.NS)(nil).ID(),
		closed:     make(chan struct{}),
		wake:       make(chan struct{}, 1),
		namespaces: map[int32]netns.ID{},
	}
	if err := w.open(); err != nil {
		return nil, errors.Join(fmt.Errorf("listen for changes of rules: %w", err), w.Close())
	}
	return w, nil
}

// open opens the sockets and starts their readers.
func (w *Watcher) open() (err error) {
	if w.ids, err = openIDClient(); err != nil {
		return err
	}
	rules, err := listen(unix.NETLINK_NETFILTER, rulesFilter(), unix.NFNLGRP_NFTABLES)
	if err != nil {
		return err
	}
	w.sockets = append(w.sockets, rules)
	routes, err := listen(unix.NETLINK_ROUTE, routesFilter(),
		unix.RTNLGRP_IPV4_RULE, unix.RTNLGRP_IPV6_RULE, unix.RTNLGRP_IPV4_ROUTE,
		unix.RTNLGRP_IPV6_ROUTE,
		unix.RTNLGRP_IPV4_IFADDR, unix.RTNLGRP_IPV6_IFADDR, unix.RTNLGRP_LINK, unix.RTNLGRP_NSID)
	if err != nil {
		return err
	}
	w.sockets = append(w.sockets, routes)
	for _, s := range w.sockets {
		w.readers.Go(func() { w.recordError(w.read(s)) })
	}
	return nil
}

// Close stops listening and ends a waiting [Watcher.Next]. It must be called once.
func (w *Watcher) Close() error {
	close(w.closed)
	var err error
	for _, s := range w.sockets {
		err = errors.Join(err, s.Close())
	}
	w.readers.Wait()
	w.mu.Lock() // a concurrent Add must not use the descriptor's number after it is closed
	defer w.mu.Unlock()
	if w.ids != nil {
		w.ids.close()
	}
	return err
}

// Add adds a namespace: the watcher reports every change after Add returns. Adding a namespace
// again does nothing. The watcher does not keep the namespace alive, and removes it after the
// kernel has destroyed it. A nil ns is the namespace of the calling thread. After [Watcher.Close]
// the error wraps [os.ErrClosed], except for the namespace that the watcher was opened in.
func (w *Watcher) Add(ns *netns.NS) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if id := ns.ID(); id == w.ownNS {
		w.namespaces[ownID] = id
		return nil
	}
	id, err := w.ids.ensure(ns)
	if err != nil {
		return fmt.Errorf("network namespace %s: assign a namespace id: %w", ns, err)
	}
	w.namespaces[id] = ns.ID()
	return nil
}

// Next waits for an event and returns it. It returns the context's error when the context ends, and
// an error that wraps [os.ErrClosed] after [Watcher.Close]. Every other error is permanent: the
// caller must close the watcher.
func (w *Watcher) Next(ctx context.Context) (Event, error) {
	for {
		if e, ok, err := w.pop(); ok || err != nil {
			return e, err
		}
		select {
		case <-w.wake:
		case <-w.closed:
			return Event{}, fmt.Errorf("watch for changes of rules: %w", os.ErrClosed)
		case <-ctx.Done():
			return Event{}, ctx.Err()
		}
	}
}

// pop removes and returns the oldest pending event. Without an event it returns the error of the
// readers.
func (w *Watcher) pop() (Event, bool, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	e, ok := w.pending.pop()
	if !ok && w.err != nil {
		return e, false, w.err
	}
	return e, ok, nil
}

// recordError records the error that ended a reader.
func (w *Watcher) recordError(err error) {
	select {
	case <-w.closed:
		err = os.ErrClosed // the reader failed because Close has closed the socket
	default:
	}
	w.mu.Lock()
	w.err = errors.Join(w.err, fmt.Errorf("watch for changes of rules: %w", err))
	w.mu.Unlock()
	w.notify()
}

// notify wakes a waiting Next.
func (w *Watcher) notify() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// remove removes the namespace with an id, unless another namespace has received the id.
func (w *Watcher) remove(id int32) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, ok := w.namespaces[id]; ok && !w.ids.inUse(id) {
		delete(w.namespaces, id)
	}
}
