package validation

import (
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
	"github.com/sluice-mesh/sluice/nft/socket"
	"github.com/sluice-mesh/sluice/rules"
)

// A listener that accepts the probe only after its deadline, as on a busy machine, still reports
// the original destination.
func TestConnectionAcceptedAfterTheDeadlineHasItsDestination(t *testing.T) {
	ns := netnstest.New(t)
	var listener, client socket.Socket
	var to netip.AddrPort
	l := &listeners{}
	o := sentProbe{}
	err := ns.Do(func() error {
		fd, err := socket.New(rules.IPv4, rules.TCP)
		if err != nil {
			return err
		}
		listener = socket.FromFD(fd)
		if err := socket.Bind(fd, netip.MustParseAddrPort("127.0.0.1:0")); err != nil {
			return err
		}
		to = socket.LocalAddr(fd)
		if err := unix.Listen(fd, 1); err != nil {
			return err
		}
		if fd, err = socket.New(rules.IPv4, rules.TCP); err != nil {
			return err
		}
		client = socket.FromFD(fd)
		if err := socket.Bind(fd, netip.MustParseAddrPort("127.0.0.1:0")); err != nil {
			return err
		}
		o.source = socket.LocalAddr(fd)
		o.arrives = l.expect(caller{rules.TCP, o.source})
		return socket.Connect(fd, to)
	})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Abort()
	l.sockets, l.tcpPorts = append(l.sockets, listener), append(l.tcpPorts, to.Port())
	defer l.close()
	const wait = 500 * time.Millisecond
	time.AfterFunc(wait+100*time.Millisecond, func() {
		l.wg.Go(func() { l.acceptConnections(listener, to.Port()) })
	})
	o.observeConnection(&validator{ns: ns}, l, &probe{packet: rules.Packet{Destination: to}},
		client, time.Now().Add(wait))
	if want := (arrival{to.Port(), to}); o.outcome != arrived || o.arrival != want {
		t.Errorf("outcome %d, arrival %+v, error %v; want outcome %d, arrival %+v", o.outcome,
			o.arrival, o.err, arrived, want)
	}
}
