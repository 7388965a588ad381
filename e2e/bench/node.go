package bench

import (
	"fmt"
	"net"
	"os"

	"github.com/vishvananda/netlink"

	"github.com/sluice-mesh/sluice/compat"
	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/rules"
)

// An Attachment is a pod's network namespace as the plugin before ours in the chain leaves it, and what a runtime calls it.
type Attachment struct {
	NS          *netns.NS
	ContainerID string
}

// podAddress is that of every pod: they never meet.
var podAddress = net.IPNet{IP: net.IPv4(10, 244, 7, 9).To4(), Mask: net.CIDRMask(24, 32)}

// NewAttachment makes a pod's namespace. It has the address on lo: no plugin looks for the interface.
func NewAttachment(number int) (*Attachment, error) {
	ns, err := netns.New()
	if err != nil {
		return nil, err
	}
	a := &Attachment{NS: ns, ContainerID: fmt.Sprintf("%064x", number)}
	err = ns.Do(func() error {
		lo, err := netlink.LinkByName("lo")
		if err != nil {
			return err
		}
		if err := netlink.LinkSetUp(lo); err != nil {
			return err
		}
		return netlink.AddrAdd(lo, &netlink.Addr{IPNet: &podAddress})
	})
	if err != nil {
		_ = ns.Close()
		return nil, fmt.Errorf("make a pod: %w", err)
	}
	return a, nil
}

// Path is that of the namespace, for other processes.
func (a *Attachment) Path() string { return fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), a.NS.FD()) }

// PrevResult is what the plugin before says of the pod.
func (a *Attachment) PrevResult() map[string]any {
	return map[string]any{
		"cniVersion": CNIVersion,
		"interfaces": []map[string]any{{"name": "cni0"}, {"name": "eth0", "sandbox": a.Path()}},
		"ips":        []map[string]any{{"interface": 1, "address": podAddress.String(), "gateway": "10.244.7.1"}},
		"routes":     []map[string]any{{"dst": "0.0.0.0/0"}},
	}
}

// redirects tells by an error if the namespace's rules do not redirect what an application sends, or if they do and should not.
func (a *Attachment) redirects(want bool) error {
	live, err := compat.ReadLive(a.NS, compat.PartAll)
	if err != nil {
		return err
	}
	packet, err := rules.ParsePacket("out tcp 10.244.7.9:40000 > 10.96.0.1:443 uid 1000")
	if err != nil {
		return err
	}
	if fate := live.Ruleset.Explain(packet).Fate; fate.Captured() != want {
		return fmt.Errorf("%s: %s", packet, fate)
	}
	return nil
}
