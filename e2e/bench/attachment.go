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

// An Attachment is the network namespace of a pod that the previous plugin of the chain has
// configured.
type Attachment struct {
	NS          *netns.NS
	ContainerID string
}

// The addresses of every pod. The pods are not connected.
var (
	podIPv4 = net.IPNet{IP: net.IPv4(10, 244, 7, 9).To4(), Mask: net.CIDRMask(24, 32)}
	podIPv6 = net.IPNet{IP: net.ParseIP("fd00:10:244:7::9"), Mask: net.CIDRMask(64, 128)}
)

// NewAttachment creates the namespace of an IPv4 pod. Different numbers give different container
// IDs.
func NewAttachment(number int) (*Attachment, error) {
	ns, err := newPod(&podIPv4)
	if err != nil {
		return nil, err
	}
	return &Attachment{NS: ns, ContainerID: fmt.Sprintf("%064x", number)}, nil
}

// NewPod creates the namespace of a dual-stack pod.
func NewPod() (*netns.NS, error) { return newPod(&podIPv4, &podIPv6) }

// newPod creates a namespace with the addresses on lo, which suffices because the rules do not
// depend on the interface of the addresses.
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
			if err := netlink.AddrAdd(lo, &netlink.Addr{
				IPNet: a, Flags: unix.IFA_F_NODAD,
			}); err != nil {
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

// Path returns the path of the namespace for other processes.
func (a *Attachment) Path() string { return fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), a.NS.FD()) }

// PrevResult returns the CNI result of the previous plugin.
func (a *Attachment) PrevResult() map[string]any {
	return map[string]any{
		"cniVersion": CNIVersion,
		"interfaces": []map[string]any{{"name": "cni0"}, {"name": "eth0", "sandbox": a.Path()}},
		"ips": []map[string]any{{
			"interface": 1, "address": podIPv4.String(), "gateway": "10.244.7.1",
		}},
		"routes": []map[string]any{{"dst": "0.0.0.0/0"}},
	}
}

// checkRedirected returns an error if the namespace's rules do not redirect outbound connections of
// an application although want is true, or redirect them although want is false.
func checkRedirected(ns *netns.NS, want bool) error {
	live, err := compat.ReadLive(ns, compat.OriginAll)
	if err != nil {
		return err
	}
	packet, err := rules.ParsePacket("out tcp 10.244.7.9:40000 > 10.96.0.1:443 uid 1000")
	if err != nil {
		return err
	}
	if outcome := diff.Explain(&live.Ruleset, packet).Outcome; outcome.Captured() != want {
		return fmt.Errorf("packet %s: %s, want captured: %t", packet, outcome, want)
	}
	return nil
}
