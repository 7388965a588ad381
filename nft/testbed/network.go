package testbed

import (
	"fmt"
	"net/netip"

	"github.com/sluice-mesh/sluice/nft/netns"
)

// The addresses, which are the same in every [Network].
var (
	PodIP4      = netip.MustParseAddr("10.244.1.5")
	PodIP6      = netip.MustParseAddr("fd00:10:244:1::5")
	NeighborIP4 = netip.MustParseAddr("10.244.1.1") // the pod's gateway
	NeighborIP6 = netip.MustParseAddr("fd00:10:244:1::1")

	// The addresses of the link between the pod's second interface ([Options.Interface]) and the
	// machine behind it, such as a virtual machine in the pod.
	MachineIP4   = netip.MustParseAddr("10.0.2.2")
	MachineIP6   = netip.MustParseAddr("fd00:10:0:2::2")
	InterfaceIP4 = netip.MustParseAddr("10.0.2.1")
	InterfaceIP6 = netip.MustParseAddr("fd00:10:0:2::1")
)

const (
	loName  = "lo"
	ethName = "eth0"
)

// createNetwork creates the namespaces, the links between them and their routes.
func (n *Network) createNetwork() error {
	var err error
	if n.Pod = n.options.Pod; n.Pod == nil {
		if n.Pod, err = n.newNS(); err != nil {
			return err
		}
	}
	if n.Neighbor, err = n.newNS(); err != nil {
		return err
	}
	steps := []step{
		// Set the default sysctls first: a new interface copies them.
		{"set the pod's sysctls", func() error { return n.Pod.Do(n.setPodSysctls) }},
		{"set the neighbor's sysctls", func() error { return n.Neighbor.Do(setNeighborSysctls) }},
		{"connect pod and neighbor", func() error { return addVeth(n.Pod, ethName, n.Neighbor) }},
		{"set up the pod", func() error { return setUp(n.Pod, ethName, PodIP4, PodIP6) }},
		{"set up the neighbor", func() error {
			return setUp(n.Neighbor, ethName, NeighborIP4, NeighborIP6)
		}},
		{"add the pod's routes", func() error {
			return addDefaultRoutes(n.Pod, NeighborIP4, NeighborIP6)
		}},
		{"add the neighbor's routes", func() error { return addNeighborRoutes(n.Neighbor) }},
	}
	if name := n.options.Interface; name != "" {
		if n.Machine, err = n.newNS(); err != nil {
			return err
		}
		steps = append(steps,
			step{"set the machine's sysctls", func() error {
				return n.Machine.Do(disableDuplicateDetection)
			}},
			step{"connect pod and machine", func() error {
				return addVeth(n.Pod, name, n.Machine)
			}},
			step{"set up " + name, func() error {
				return setUp(n.Pod, name, InterfaceIP4, InterfaceIP6)
			}},
			step{"set up the machine", func() error {
				return setUp(n.Machine, ethName, MachineIP4, MachineIP6)
			}},
			step{"add the machine's routes", func() error {
				return addDefaultRoutes(n.Machine, InterfaceIP4, InterfaceIP6)
			}},
		)
	}
	steps = append(steps,
		step{"wait for the pod's link", func() error { return WaitUsable(n.Pod, ethName, PodIP6) }},
		step{"wait for the neighbor's link", func() error {
			return WaitUsable(n.Neighbor, ethName, NeighborIP6)
		}},
	)
	if name := n.options.Interface; name != "" {
		steps = append(steps,
			step{"wait for " + name, func() error { return WaitUsable(n.Pod, name, InterfaceIP6) }},
			step{"wait for the machine's link", func() error {
				return WaitUsable(n.Machine, ethName, MachineIP6)
			}},
		)
	}
	for _, s := range steps {
		if err := s.run(); err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
	}
	return nil
}

// A step is an action of createNetwork, with its description for errors.
type step struct {
	name string
	run  func() error
}

// newNS creates a namespace that Close closes.
func (n *Network) newNS() (*netns.NS, error) {
	ns, err := netns.New()
	if err == nil {
		n.owned = append(n.owned, ns)
	}
	return ns, err
}

// setPodSysctls disables duplicate address detection, and enables forwarding if the pod has a
// second interface.
func (n *Network) setPodSysctls() error {
	if n.options.Interface != "" {
		if err := sysctl("ipv4/ip_forward", "1"); err != nil {
			return err
		}
		if err := sysctl("ipv6/conf/all/forwarding", "1"); err != nil {
			return err
		}
	}
	return disableDuplicateDetection()
}

// disableDuplicateDetection disables duplicate address detection on interfaces that are created
// later. The detection would delay the use of a link-local address by about a second.
func disableDuplicateDetection() error { return sysctl("ipv6/conf/default/accept_dad", "0") }

// setNeighborSysctls disables duplicate address detection, and allows the neighbor to answer from
// every address.
func setNeighborSysctls() error {
	if err := disableDuplicateDetection(); err != nil {
		return err
	}
	if err := sysctl("ipv4/ip_nonlocal_bind", "1"); err != nil {
		return err
	}
	return sysctl("ipv6/ip_nonlocal_bind", "1")
}
