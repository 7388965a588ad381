package watch

import (
	"errors"
	"fmt"
	"os"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/nft/netns"
)

// ids are those that namespaces have in one of them. They are asked for by one goroutine at a time.
type ids struct{ socket *nl.NetlinkSocket }

// openIDs returns the ids in the thread's namespace.
func openIDs() (*ids, error) {
	s, err := nl.Subscribe(unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("open route netlink socket: %w", err)
	}
	return &ids{s}, nil
}

func (i *ids) close() { i.socket.Close() }

// of returns the id of a namespace, which gets one if it has none.
func (i *ids) of(ns *netns.NS) (int32, error) {
	fd := ns.FD()
	if ns == nil {
		own, err := netns.Open("/proc/thread-self/ns/net")
		if err != nil {
			return 0, err
		}
		defer own.Close() //nolint:errcheck // nothing was done with it
		fd = own.FD()
	}
	if fd < 0 {
		return 0, os.ErrClosed
	}
	id, err := i.get(fd)
	if err != nil || id >= 0 {
		return id, err
	}
	// The kernel refuses if the namespace has got one meanwhile, as by somebody who lists interfaces.
	if err := i.assign(fd); err != nil && !errors.Is(err, unix.EEXIST) {
		return 0, needs(err, "CAP_NET_ADMIN")
	}
	id, err = i.get(fd)
	if err == nil && id < 0 {
		err = errors.New("it got none")
	}
	return id, err
}

// get returns the id of the namespace that a descriptor refers to, -1 if it has none.
func (i *ids) get(fd int) (int32, error) {
	answers, err := i.ask(unix.RTM_GETNSID, 0, attribute{unix.NETNSA_FD, uint32(fd)})
	for _, a := range answers {
		if id, ok := message(append(make([]byte, bodyAt), a...)).nsid(); ok {
			return id, err
		}
	}
	return -1, err
}

// assign gives the namespace that a descriptor refers to an id that the kernel chooses.
func (i *ids) assign(fd int) error {
	const any32 = 1<<32 - 1 // -1
	_, err := i.ask(unix.RTM_NEWNSID, unix.NLM_F_ACK, attribute{unix.NETNSA_FD, uint32(fd)}, attribute{unix.NETNSA_NSID, any32})
	return err
}

// inUse tells whether a namespace has the id. Kernels before 4.20 do not tell; the answer is yes then.
func (i *ids) inUse(id int32) bool {
	_, err := i.ask(unix.RTM_GETNSID, 0, attribute{unix.NETNSA_NSID, uint32(id)})
	return !errors.Is(err, unix.ENOENT)
}

// An attribute of a question is a number.
type attribute struct {
	kind  int
	value uint32
}

func (i *ids) ask(kind, flags int, attributes ...attribute) ([][]byte, error) {
	r := nl.NewNetlinkRequest(kind, flags)
	r.Sockets = map[int]*nl.SocketHandle{unix.NETLINK_ROUTE: {Socket: i.socket}}
	r.AddData(&nl.RtGenMsg{})
	for _, a := range attributes {
		r.AddData(nl.NewRtAttr(a.kind, native.AppendUint32(nil, a.value)))
	}
	return r.Execute(unix.NETLINK_ROUTE, 0)
}
