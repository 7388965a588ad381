package soak

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/containernetworking/cni/libcni"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/nft"
	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/rules"
)

const (
	podAddress = "10.244.7.9"
	// externalAddress is an unused address. A connection to it succeeds only if it is captured.
	externalAddress = "10.96.0.1:80"
	proxy           = "127.0.0.1:15001"
)

// A sandbox is the network namespace of a mesh pod, with a listener instead of a proxy.
type sandbox struct {
	id       string
	ns       *netns.NS
	listener net.Listener
	accepted atomic.Int64
	// busy is write-locked while rules are deleted and restored and while the sandbox is removed,
	// and read-locked during connections.
	busy    sync.RWMutex
	removed bool
}

// newSandbox creates a namespace with an address and a route, mounts it like a container runtime,
// and runs the plugins.
func (n *node) newSandbox(number int, pod string) (*sandbox, error) {
	s := &sandbox{id: fmt.Sprintf("%064x", number)}
	var err error
	if s.ns, err = netns.New(); err != nil {
		return nil, err
	}
	if err := s.ns.Do(s.createNetwork); err != nil {
		return nil, errors.Join(fmt.Errorf("create the network: %w", err), s.ns.Close())
	}
	go s.accept()
	err = os.WriteFile(s.path(), nil, 0o600)
	if err == nil {
		err = unix.Mount(fmt.Sprintf("/proc/self/fd/%d", s.ns.FD()), s.path(), "", unix.MS_BIND, "")
	}
	if err == nil {
		n.api.Put(strings.NewReplacer("NAME", s.name(), "UID", s.uid()).Replace(pod))
		err = n.runPlugins(s, func(
			ctx context.Context, list *libcni.NetworkConfigList, rt *libcni.RuntimeConf,
		) error {
			_, err := n.plugin.AddNetworkList(ctx, list, rt)
			return err
		})
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("ADD of %s: %w", s.name(), err), n.remove(s))
	}
	return s, nil
}

// createNetwork creates an interface with an address and a default route, and a listener. The other
// end of the interface discards packets, so a connection that is not captured fails.
func (s *sandbox) createNetwork() error {
	if err := netlink.LinkAdd(&netlink.Veth{
		LinkAttrs: netlink.LinkAttrs{Name: "eth0"}, PeerName: "peer",
	}); err != nil {
		return err
	}
	var eth0 netlink.Link
	for _, name := range []string{"lo", "peer", "eth0"} {
		link, err := netlink.LinkByName(name)
		if err != nil {
			return err
		}
		if err := netlink.LinkSetUp(link); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		eth0 = link
	}
	address := &net.IPNet{IP: net.ParseIP(podAddress), Mask: net.CIDRMask(32, 32)}
	if err := netlink.AddrAdd(eth0, &netlink.Addr{IPNet: address}); err != nil {
		return err
	}
	anyAddress := &net.IPNet{IP: net.IPv4zero, Mask: net.CIDRMask(0, 32)}
	err := netlink.RouteAdd(&netlink.Route{
		LinkIndex: eth0.Attrs().Index, Dst: anyAddress, Scope: netlink.SCOPE_LINK,
	})
	if err != nil {
		return err
	}
	s.listener, err = net.Listen("tcp4", proxy)
	return err
}

func (s *sandbox) accept() {
	for {
		c, err := s.listener.Accept()
		if err != nil {
			return // closed
		}
		s.accepted.Add(1)
		_ = c.Close()
	}
}

func (s *sandbox) name() string { return "orders-" + s.id[len(s.id)-8:] }
func (s *sandbox) uid() string  { return "uid-" + s.id[len(s.id)-8:] }
func (s *sandbox) path() string { return filepath.Join(netnsDir, "cni-"+s.id[len(s.id)-8:]) }

// runPlugins calls do with the CNI configuration that is currently installed.
func (n *node) runPlugins(
	s *sandbox, do func(context.Context, *libcni.NetworkConfigList, *libcni.RuntimeConf) error,
) error {
	list, err := libcni.ConfListFromFile(n.path(conflist))
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	return do(ctx, list, &libcni.RuntimeConf{
		ContainerID: s.id, NetNS: s.path(), IfName: "eth0",
		Args: [][2]string{
			{"IgnoreUnknown", "1"},
			{"K8S_POD_NAMESPACE", "shop"},
			{"K8S_POD_NAME", s.name()},
			{"K8S_POD_INFRA_CONTAINER_ID", s.id},
			{"K8S_POD_UID", s.uid()},
		},
	})
}

// remove removes a sandbox like a container runtime.
func (n *node) remove(s *sandbox) error {
	s.busy.Lock()
	defer s.busy.Unlock()
	s.removed = true
	err := n.runPlugins(s, func(
		ctx context.Context, list *libcni.NetworkConfigList, rt *libcni.RuntimeConf,
	) error {
		return n.plugin.DelNetworkList(ctx, list, rt)
	})
	if err != nil {
		err = fmt.Errorf("DEL of %s: %w", s.name(), err)
	}
	n.api.DeletePod("shop", s.name())
	return errors.Join(err, s.listener.Close(), unix.Unmount(s.path(), unix.MNT_DETACH),
		os.Remove(s.path()), s.ns.Close())
}

// connectCaptured opens a connection to externalAddress, and returns an error if the connection
// does not reach the listener. attempted is false if the sandbox no longer exists.
func (s *sandbox) connectCaptured() (attempted bool, err error) {
	s.busy.RLock()
	defer s.busy.RUnlock()
	if s.removed {
		return false, nil
	}
	before := s.accepted.Load()
	err = s.ns.Do(func() error {
		c, err := net.DialTimeout("tcp4", externalAddress, timeout/4)
		if err != nil {
			return err
		}
		// Wait until the listener closes the connection, because it may not have accepted it yet.
		_, _ = c.Read(make([]byte, 1))
		return c.Close()
	})
	if err == nil && s.accepted.Load() == before {
		err = errors.New("the listener did not accept a connection")
	}
	if err != nil {
		err = fmt.Errorf("%s: a connection to %s was not captured: %w", s.name(), externalAddress, err)
	}
	return true, err
}

// measureRepair deletes the rules, waits until they are restored, and returns the elapsed time.
// done is false without an error if the sandbox no longer exists.
func (s *sandbox) measureRepair() (elapsed time.Duration, done bool, err error) {
	s.busy.Lock()
	defer s.busy.Unlock()
	if s.removed {
		return 0, false, nil
	}
	want, err := nft.Read(s.ns)
	if err != nil {
		return 0, false, err
	}
	if _, err := nft.RemoveRules(s.ns); err != nil {
		return 0, false, err
	}
	begin := time.Now()
	for time.Since(begin) < timeout {
		got, err := nft.Read(s.ns)
		if err == nil && len(got.Tables) > 0 && len(rules.Compare(want, got)) == 0 {
			return time.Since(begin), true, nil
		}
		time.Sleep(time.Millisecond)
	}
	return 0, false, fmt.Errorf("%s: deleted rules were not restored within %s", s.name(),
		timeout)
}
