package bench

import (
	"errors"
	"fmt"
	"net"
	"os"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/compat"
	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/rules"
	"github.com/sluice-mesh/sluice/rules/diff"
)

// An Attachment is a pod's network namespace as the plugin before ours in the chain leaves it, and
// what a runtime calls it.
type Attachment struct {
	NS          *netns.NS
	ContainerID string
}

// The addresses of every pod: they never meet.
var (
	podIPv4 = net.IPNet{IP: net.IPv4(10, 244, 7, 9).To4(), Mask: net.CIDRMask(24, 32)}
	podIPv6 = net.IPNet{IP: net.ParseIP("fd00:10:244:7::9"), Mask: net.CIDRMask(64, 128)}
)

// NewAttachment makes an IPv4 pod.
func NewAttachment(number int) (*Attachment, error) {
	ns, err := newPod(&podIPv4)
	if err != nil {
		return nil, err
	}
	return &Attachment{NS: ns, ContainerID: fmt.Sprintf("%064x", number)}, nil
}

// NewPod makes the namespace of a dual-stack pod.
func NewPod() (*netns.NS, error) { return newPod(&podIPv4, &podIPv6) }

// newPod makes a namespace that has the addresses on lo: nobody looks for the interface.
func newPod(addresses ...*net.IPNet) (*netns.NS, error) {
	ns, err := netns.New()
	if err != nil {
		return nil, err
	}
	err = ns.Do(func() error {
		lo, err := netlink.LinkByName("lo")
		if err != nil {
			return err
		}
		if err := netlink.LinkSetUp(lo); err != nil {
			return err
		}
		for _, a := range addresses {
			if err := netlink.AddrAdd(lo, &netlink.Addr{IPNet: a, Flags: unix.IFA_F_NODAD}); err != nil {
				return fmt.Errorf("address %s: %w", a, err)
			}
		}
		return nil
	})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("make a pod: %w", err), ns.Close())
	}
	return ns, nil
}

// Path is that of the namespace, for other processes.
func (a *Attachment) Path() string { return fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), a.NS.FD()) }

// PrevResult is what the plugin before says of the pod.
func (a *Attachment) PrevResult() map[string]any {
	return map[string]any{
		"cniVersion": CNIVersion,
		"interfaces": []map[string]any{{"name": "cni0"}, {"name": "eth0", "sandbox": a.Path()}},
		"ips":        []map[string]any{{"interface": 1, "address": podIPv4.String(), "gateway": "10.244.7.1"}},
		"routes":     []map[string]any{{"dst": "0.0.0.0/0"}},
	}
}

// redirects tells by an error if the namespace's rules do not redirect what an application sends,
// or if they do and should not.
func redirects(ns *netns.NS, want bool) error {
	live, err := compat.ReadLive(ns, compat.OriginAll)
	if err != nil {
		return err
	}
	packet, err := rules.ParsePacket("out tcp 10.244.7.9:40000 > 10.96.0.1:443 uid 1000")
	if err != nil {
		return err
	}
	if fate := diff.Explain(&live.Ruleset, packet).Fate; fate.Captured() != want {
		return fmt.Errorf("%s: %s", packet, fate)
	}
	return nil
}
