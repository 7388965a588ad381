package testbed

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"strconv"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/nft/socket"
	"github.com/sluice-mesh/sluice/rules"
)

// A Conn is an open call: a connection, or a socket that sends datagrams to one destination. It is
// not safe for concurrent use.
type Conn struct {
	s          socket.Socket
	answers    *bufio.Reader
	local      netip.AddrPort
	timeout    time.Duration
	connectErr error // the error of connect(2)
}

// lastToken is the token of the last request of the process. The token of an answer is the token of
// its request.
var lastToken atomic.Uint64

// Dial makes the servers that the call may reach listen on its port, if they are running. Then it
// makes the call, sends one request, and closes the connection. Dial returns an error if it cannot
// make the call. A missing answer is not an error, but an outcome of the Answer.
func (n *Network) Dial(c Call) (Answer, error) {
	conn, err := n.Open(c)
	if err != nil {
		return Answer{}, err
	}
	defer conn.Close()
	return conn.Ask(), nil
}

// Open starts the call without waiting for the connection. Like Dial, it makes the servers listen
// first. The Conn must be closed after use.
func (n *Network) Open(c Call) (*Conn, error) {
	protocol, err := c.protocol()
	if err != nil {
		return nil, fmt.Errorf("call %s: %w", c, err)
	}
	caller, err := n.caller(c)
	if err != nil {
		return nil, fmt.Errorf("call %s: %w", c, err)
	}
	if err := n.listenFor(c, endpoint{protocol, c.To.Port()}); err != nil {
		return nil, fmt.Errorf("call %s: %w", c, err)
	}
	conn, err := caller.open(c, protocol)
	if err != nil {
		return nil, fmt.Errorf("call %s: %w", c, err)
	}
	return conn, nil
}

// caller returns the identity of the calling process.
func (n *Network) caller(c Call) (identity, error) {
	switch {
	case c.From == FromPod:
		return n.identity(c.Owner), nil
	case c.From == FromNeighbor:
		return identity{ns: n.Neighbor}, nil
	case n.Machine != nil:
		return identity{ns: n.Machine}, nil
	}
	return identity{}, errors.New("the pod has no second interface with a machine")
}

// listenFor makes the servers that the call may reach listen on the endpoint.
func (n *Network) listenFor(c Call, e endpoint) error {
	n.mu.Lock()
	application := n.application
	n.mu.Unlock()
	switch {
	case isPodAddr(c.To.Addr()):
		return application.serve(e)
	case n.isMachineAddr(c.To.Addr()):
		return n.machine.serve(e)
	case c.Mark != 0 && c.From == FromPod:
		// A policy route for the mark may make any destination local to the pod.
		return errors.Join(application.serve(e), n.outside.serve(e))
	}
	return n.outside.serve(e)
}

// isPodAddr reports whether the address belongs to the pod: an address of its interfaces, a
// loopback address, or ::6, which the routing of a ruleset adds to lo.
func isPodAddr(a netip.Addr) bool {
	switch a {
	case PodIP4, PodIP6, InterfaceIP4, InterfaceIP6, rules.PassthroughIPv6():
		return true
	}
	return a.IsLoopback()
}

// isMachineAddr reports whether the machine has the address.
func (n *Network) isMachineAddr(a netip.Addr) bool {
	return n.Machine != nil && (a == MachineIP4 || a == MachineIP6)
}

// open opens the caller's socket and starts to connect it.
func (i identity) open(c Call, protocol rules.Protocol) (*Conn, error) {
	family := rules.FamilyOf(c.To.Addr())
	options := []socket.Option{socket.ReuseAddr}
	if c.Mark != 0 {
		options = append(options, socket.Mark(c.Mark))
	}
	if c.Transparent {
		options = append(options, socket.Transparent(family))
	}
	conn := &Conn{timeout: cmp.Or(c.Timeout, DefaultTimeout)}
	err := i.do(func() error {
		fd, err := socket.New(family, protocol, options...)
		if err != nil {
			return err
		}
		if c.Local.IsValid() {
			if err := socket.Bind(fd, c.Local); err != nil {
				_ = unix.Close(fd)
				return err
			}
		}
		conn.connectErr = socket.Connect(fd, c.To)
		conn.local = socket.LocalAddr(fd)
		conn.s = socket.FromFD(fd)
		return nil
	})
	if err != nil {
		return nil, err
	}
	conn.answers = bufio.NewReader(conn.s)
	return conn, nil
}

// SetTimeout sets the time limit of each further request.
func (c *Conn) SetTimeout(timeout time.Duration) { c.timeout = timeout }

// Ask sends a request and returns its answer. The first request waits for the connection.
func (c *Conn) Ask() Answer {
	a := c.roundTrip()
	a.Source = c.local
	return a
}

// roundTrip sends a request and waits for its answer.
func (c *Conn) roundTrip() Answer {
	if c.connectErr != nil {
		return answerOfError(c.connectErr)
	}
	if err := c.s.SetDeadline(time.Now().Add(c.timeout)); err != nil {
		return answerOfError(err)
	}
	if err := c.s.WaitConnected(); err != nil {
		return answerOfError(err)
	}
	token := strconv.FormatUint(lastToken.Add(1), 10)
	if _, err := c.s.WriteString(token + "\n"); err != nil {
		return answerOfError(err)
	}
	for {
		line, err := c.answers.ReadString('\n')
		if errors.Is(err, io.EOF) {
			err = errors.New("the server closed the connection without an answer")
		}
		if err != nil {
			return answerOfError(err)
		}
		answerToken, hops, err := decode(line)
		if err != nil {
			return answerOfError(err)
		}
		// A late answer to an earlier request has another token.
		if answerToken == token {
			return Answer{Hop: hops[0], Upstream: hops[1:]}
		}
	}
}

// Close closes the connection with a reset.
func (c *Conn) Close() { c.s.Abort() }
