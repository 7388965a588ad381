package cluster

import (
	"errors"
	"io"
	"net"

	"github.com/sluice-mesh/sluice/nft/netns"
)

// A forwarder forwards a port on this machine's loopback interface to a port on a node. It connects
// from inside the node's network namespace, because no interface leads to the node.
type forwarder struct {
	listener net.Listener
	// ns returns the file of the node's network namespace. A reboot changes the file.
	ns     func() string
	target string // address and port in that namespace
}

// forward starts a forwarder to the address target in the network namespace that the file ns()
// names.
func forward(ns func() string, target string) (*forwarder, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	f := &forwarder{listener: listener, ns: ns, target: target}
	go f.serve()
	return f, nil
}

func (f *forwarder) address() string { return f.listener.Addr().String() }

// serve accepts connections and forwards them until the listener is closed.
func (f *forwarder) serve() {
	for {
		from, err := f.listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err == nil {
			go f.forward(from)
		}
	}
}

// forward connects to the target, and copies in both directions until both have ended. If it cannot
// connect, it closes the client's connection.
func (f *forwarder) forward(from net.Conn) {
	defer func() { _ = from.Close() }()
	to, err := f.dial()
	if err != nil {
		return
	}
	defer func() { _ = to.Close() }()
	done := make(chan struct{})
	go func() {
		copyHalf(to, from)
		close(done)
	}()
	copyHalf(from, to)
	<-done
}

// copyHalf copies data from one connection to another, and then closes the destination for writing.
func copyHalf(to, from net.Conn) {
	_, _ = io.Copy(to, from)
	_ = to.(*net.TCPConn).CloseWrite()
}

// dial connects to the target from the node's network namespace.
func (f *forwarder) dial() (conn net.Conn, err error) {
	ns, err := netns.Open(f.ns())
	if err != nil {
		return nil, err
	}
	defer func() { _ = ns.Close() }()
	err = ns.Do(func() error {
		conn, err = net.Dial("tcp", f.target)
		return err
	})
	return conn, err
}
