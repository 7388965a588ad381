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

// A Watcher hears of changes in all namespaces that were added to it. Its methods are safe for
// concurrent use, [Watcher.Next] by one goroutine at a time.
type Watcher struct {
	ids     *ids
	sockets []socket.Socket
	readers sync.WaitGroup
	closed  chan struct{}
	own     netns.ID      // where it listens
	wake    chan struct{} // has room for one

	mu sync.Mutex
	// known are the namespaces by their ids. Which ids are in use is changed only while this is
	// locked.
	known   map[int32]netns.ID
	pending pending
	failed  error
}

// Open begins to listen, in the network namespace of the calling thread. The error names the
// capability that is missing, if one is, and [unix.EPERM] is in it then. [unix.EPROTONOSUPPORT] is
// in it if the kernel has no nf_tables at all.
func Open() (*Watcher, error) {
	w := &Watcher{own: (*netns.NS)(nil).ID(), closed: make(chan struct{}), wake: make(chan struct{}, 1), known: map[int32]netns.ID{}}
	if err := w.open(); err != nil {
		return nil, errors.Join(fmt.Errorf("listen for changes of rules: %w", err), w.Close())
	}
	return w, nil
}

func (w *Watcher) open() (err error) {
	if w.ids, err = openIDs(); err != nil {
		return err
	}
	rules, err := listen(unix.NETLINK_NETFILTER, rulesFilter(), unix.NFNLGRP_NFTABLES)
	if err != nil {
		return err
	}
	w.sockets = append(w.sockets, rules)
	routes, err := listen(unix.NETLINK_ROUTE, routesFilter(), unix.RTNLGRP_IPV4_RULE, unix.RTNLGRP_IPV6_RULE, unix.RTNLGRP_IPV4_ROUTE,
		unix.RTNLGRP_IPV6_ROUTE, unix.RTNLGRP_IPV6_IFADDR, unix.RTNLGRP_LINK, unix.RTNLGRP_NSID)
	if err != nil {
		return err
	}
	w.sockets = append(w.sockets, routes)
	for _, s := range w.sockets {
		w.readers.Go(func() { w.fail(w.read(s)) })
	}
	return nil
}

// Close ends listening, and a [Watcher.Next] that waits. It is called once.
func (w *Watcher) Close() error {
	close(w.closed)
	var err error
	for _, s := range w.sockets {
		err = errors.Join(err, s.Close())
	}
	w.readers.Wait()
	w.mu.Lock() // or an Add that is under way would ask whatever has the descriptor's number next
	defer w.mu.Unlock()
	if w.ids != nil {
		w.ids.close()
	}
	return err
}

// Add makes the watcher hear of a namespace from now on: look at it after this, and no change is
// missed. To add one again does nothing. A namespace needs not be taken out: when it ends the
// watcher forgets it, and does not keep it from ending. A nil ns is the one of the calling thread.
// The error has [os.ErrClosed] in it after [Watcher.Close].
func (w *Watcher) Add(ns *netns.NS) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if id := ns.ID(); id == w.own {
		w.known[nowhere] = id
		return nil
	}
	id, err := w.ids.of(ns)
	if err != nil {
		return fmt.Errorf("network namespace %s: give it an id, to hear of it: %w", ns, err)
	}
	w.known[id] = ns.ID()
	return nil
}

// Next waits until something was heard, and returns it. The error is the context's, [os.ErrClosed]
// after [Watcher.Close], or what keeps the watcher from ever hearing anything again; then it is to
// be closed.
func (w *Watcher) Next(ctx context.Context) (Event, error) {
	for {
		if e, ok, err := w.take(); ok || err != nil {
			return e, err
		}
		select {
		case <-w.wake:
		case <-w.closed:
			return Event{}, fmt.Errorf("hear of changes of rules: %w", os.ErrClosed)
		case <-ctx.Done():
			return Event{}, ctx.Err()
		}
	}
}

func (w *Watcher) take() (Event, bool, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	e, ok := w.pending.take()
	if !ok && w.failed != nil {
		return e, false, w.failed
	}
	return e, ok, nil
}

// fail ends a reader.
func (w *Watcher) fail(err error) {
	select {
	case <-w.closed:
		err = os.ErrClosed // whose sockets are closed, in other words
	default:
	}
	w.mu.Lock()
	w.failed = errors.Join(w.failed, fmt.Errorf("hear of changes of rules: %w", err))
	w.mu.Unlock()
	w.call()
}

// call wakes who waits in Next.
func (w *Watcher) call() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// forget forgets the namespace that had an id, unless another one has it by now.
func (w *Watcher) forget(id int32) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, ok := w.known[id]; ok && !w.ids.inUse(id) {
		delete(w.known, id)
	}
}
