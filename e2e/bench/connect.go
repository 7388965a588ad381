package bench

import (
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/e2e/bench/report"
	"github.com/sluice-mesh/sluice/e2e/istio"
	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/rules"
)

// connectRows returns the row that measures new connections.
func connectRows(t Tools) []Row {
	row := Row{
		ID: "connect", Topic: "New connections",
		Name: "sequential connections, redirected to a listener in the pod", RoundsFactor: 4,
		Plotted:    report.Rate,
		Candidates: []Candidate{t.connectCandidate("no rules", report.Floor, podSetup{})},
	}
	sizes := []int{0, 1000, 10_000}
	entryName := func(p installer, prefixes int) string {
		return fmt.Sprintf("%s, %d prefixes", p.name, prefixes)
	}
	sluice := rulesApply
	sluice.name = "Sluice"
	for _, p := range []installer{sluice, istioLegacy, istioNative} {
		for _, n := range sizes {
			setup := podSetup{installer: &p, sidecar: Sidecar{IPv4Prefixes: n}}
			row.Candidates = append(row.Candidates,
				t.connectCandidate(entryName(p, n), p.kind, setup))
		}
	}
	// Two measurements of the same rules differ by one or two percent.
	const minimumRatio = 0.97
	for i, n := range sizes {
		row.Goals = append(row.Goals, report.Goal{
			Entry: entryName(sluice, n), Quantity: report.Rate,
			Others: []string{entryName(istioLegacy, n)}, Factor: minimumRatio,
		})
		if i > 0 {
			row.Goals = append(row.Goals, report.Goal{
				Entry: entryName(sluice, n), Quantity: report.Rate,
				Others: []string{entryName(sluice, 0)}, Factor: minimumRatio,
			})
		}
	}
	return []Row{row}
}

// A podSetup describes a pod that stays the same in all rounds.
type podSetup struct {
	// installer writes the pod's rules before the first round; if nil, the pod has none.
	installer  *installer
	sidecar    Sidecar
	background backgroundProgram // runs in the pod during all rounds; may be nil
}

// open sets up a pod, and returns a function that ends the background program and closes the pod.
// If open fails, it closes the pod.
func (p podSetup) open(
	t Tools, ns *netns.NS, closePod func() error,
) (end func(), err error) {
	if p.installer != nil {
		err = p.installer.run(t, ns, p.sidecar)
	}
	stop := func() {}
	if err == nil && p.background != nil {
		stop, err = p.background(ns)
	}
	if err != nil {
		return nil, errors.Join(err, closePod())
	}
	return func() {
		stop()
		_ = closePod()
	}, nil
}

// connectCandidate returns a candidate that opens connections in the same pod in all rounds.
func (t Tools) connectCandidate(name string, kind report.Kind, setup podSetup) Candidate {
	const connections = 500
	var l *proxyListener
	to := &unix.SockaddrInet4{Addr: [4]byte{10, 9, 9, 9}, Port: 80}
	if setup.installer == nil {
		to = &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}, Port: rules.DefaultProxyPort}
	}
	return Candidate{
		Name: name, Kind: kind,
		Open: func() (end func(), err error) {
			if l, err = listenInPod(); err != nil {
				return nil, err
			}
			return setup.open(t, l.ns, l.close)
		},
		Prepare: func() (Task, error) {
			return Task{Do: func() (s Sample, err error) {
				err = l.ns.Do(func() error {
					begin := time.Now()
					for range connections {
						if err := connect(to); err != nil {
							return err
						}
					}
					s = Sample{report.Rate: connections / time.Since(begin).Seconds()}
					return nil
				})
				return s, err
			}}, nil
		},
	}
}

// A proxyListener is a pod with a listener on the proxy's port.
type proxyListener struct {
	ns       *netns.NS
	listener int           // file descriptor
	done     chan struct{} // closed when accept has returned
}

// listenInPod creates a pod whose listener accepts connections until close is called.
func listenInPod() (*proxyListener, error) {
	ns, err := istio.DualPod.NewNamespace()
	if err != nil {
		return nil, err
	}
	l := &proxyListener{ns: ns, done: make(chan struct{})}
	if err := ns.Do(l.listen); err != nil {
		return nil, errors.Join(fmt.Errorf("listen in a pod: %w", err), ns.Close())
	}
	go l.accept()
	return l, nil
}

// listen opens the listener. It also adds a default route, because the kernel looks up a route for
// a packet before the packet traverses the rules.
func (l *proxyListener) listen() (err error) {
	eth, err := netlink.LinkByName("eth0")
	if err != nil {
		return err
	}
	anyAddress := &net.IPNet{IP: net.IPv4zero, Mask: net.CIDRMask(0, 32)}
	if err := netlink.RouteAdd(&netlink.Route{
		LinkIndex: eth.Attrs().Index, Dst: anyAddress,
	}); err != nil {
		return fmt.Errorf("add the default route: %w", err)
	}
	if l.listener, err = unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC,
		0); err != nil {
		return err
	}
	if err := unix.Bind(l.listener, &unix.SockaddrInet4{Port: rules.DefaultProxyPort}); err != nil {
		return err
	}
	return unix.Listen(l.listener, 1024)
}

// accept accepts and closes connections until the listener is shut down.
func (l *proxyListener) accept() {
	defer close(l.done)
	for {
		fd, _, err := unix.Accept(l.listener)
		if err != nil {
			return
		}
		_ = unix.Close(fd)
	}
}

// close closes the listener and the pod's namespace.
func (l *proxyListener) close() error {
	err := unix.Shutdown(l.listener, unix.SHUT_RDWR)
	<-l.done
	return errors.Join(err, unix.Close(l.listener), l.ns.Close())
}

// connect opens a connection and closes it.
func connect(to *unix.SockaddrInet4) error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(fd) }()
	// Closing with a reset leaves no port in TIME_WAIT.
	if err := unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER,
		&unix.Linger{Onoff: 1}); err != nil {
		return err
	}
	return unix.Connect(fd, to)
}
