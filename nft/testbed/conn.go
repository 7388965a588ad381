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

// A Conn is a call that lasts: a connection, or a socket that sends its datagrams to one
// destination. It is not safe for concurrent use.
type Conn struct {
	s       socket.Socket
	answers *bufio.Reader
	own     netip.AddrPort
	timeout time.Duration
	started error // why the connection could not even be tried
}

// tokens tells calls apart.
var tokens atomic.Uint64

// Dial makes the call, asks once, and hangs up. Whoever the call is for listens on its port, as
// long as he is there at all. The error reports that the call could not be made, not that it was
// not answered: the answer says that.
func (b *Bed) Dial(c Call) (Answer, error) {
	conn, err := b.Open(c)
	if err != nil {
		return Answer{}, err
	}
	defer conn.Close()
	return conn.Ask(), nil
}

// Open begins the call, and does not wait for the connection. The caller closes it.
func (b *Bed) Open(c Call) (*Conn, error) {
	protocol, err := c.protocol()
	if err != nil {
		return nil, fmt.Errorf("call %s: %w", c, err)
	}
	who, err := b.caller(c)
	if err != nil {
		return nil, fmt.Errorf("call %s: %w", c, err)
	}
	if err := b.expect(c, endpoint{protocol, c.To.Port()}); err != nil {
		return nil, fmt.Errorf("call %s: %w", c, err)
	}
	conn, err := who.open(c, protocol)
	if err != nil {
		return nil, fmt.Errorf("call %s: %w", c, err)
	}
	return conn, nil
}

// caller is who makes the call.
func (b *Bed) caller(c Call) (identity, error) {
	switch {
	case c.From == FromPod:
		return b.identity(c.Owner), nil
	case c.From == FromNeighbour:
		return identity{ns: b.Neighbour}, nil
	case b.Machine != nil:
		return identity{ns: b.Machine}, nil
	}
	return identity{}, errors.New("the pod has no machine behind a second interface")
}

// expect lets those listen whom the call may reach.
func (b *Bed) expect(c Call, e endpoint) error {
	b.mu.Lock()
	application := b.application
	b.mu.Unlock()
	switch {
	case isPods(c.To.Addr()):
		return application.serve(e)
	case b.isMachines(c.To.Addr()):
		return b.machine.serve(e)
	case c.Mark != 0 && c.From == FromPod:
		// A mark may make any destination the pod's.
		return errors.Join(application.serve(e), b.outside.serve(e))
	}
	return b.outside.serve(e)
}

// isPods reports whether the pod has the address.
func isPods(a netip.Addr) bool {
	switch a {
	case PodIP4, PodIP6, InterfaceIP4, InterfaceIP6, passthrough6:
		return true
	}
	return a.IsLoopback()
}

// isMachines reports whether the machine has the address.
func (b *Bed) isMachines(a netip.Addr) bool {
	return b.Machine != nil && (a == MachineIP4 || a == MachineIP6)
}

// open makes the caller's socket.
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
		conn.started = socket.Connect(fd, c.To)
		conn.own = socket.LocalAddr(fd)
		conn.s = socket.FromFD(fd)
		return nil
	})
	if err != nil {
		return nil, err
	}
	conn.answers = bufio.NewReader(conn.s)
	return conn, nil
}

// Ask sends a request and returns the answer to it. The first one also waits for the connection.
func (c *Conn) Ask() Answer {
	a := c.ask()
	a.Own = c.own
	return a
}

func (c *Conn) ask() Answer {
	if c.started != nil {
		return unanswered(c.started)
	}
	if err := c.s.SetDeadline(time.Now().Add(c.timeout)); err != nil {
		return unanswered(err)
	}
	if err := c.s.WaitConnected(); err != nil {
		return unanswered(err)
	}
	token := strconv.FormatUint(tokens.Add(1), 10)
	if _, err := c.s.WriteString(token + "\n"); err != nil {
		return unanswered(err)
	}
	for {
		line, err := c.answers.ReadString('\n')
		if errors.Is(err, io.EOF) {
			err = errors.New("hung up without an answer")
		}
		if err != nil {
			return unanswered(err)
		}
		of, hops, err := decode(line)
		if err != nil {
			return unanswered(err)
		}
		// Another token is of an earlier request, whose answer was late.
		if of == token {
			return Answer{Hop: hops[0], Upstream: hops[1:]}
		}
	}
}

// Close hangs up, with a reset.
func (c *Conn) Close() { c.s.Abort() }
