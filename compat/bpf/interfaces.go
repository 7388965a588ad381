package bpf

import (
	"os"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// addNamespace adds the programs at the network namespace of the thread.
func (l *Listing) addNamespace() {
	file, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		l.addUnread("programs of the namespace", err)
		return
	}
	defer func() { _ = file.Close() }()
	l.query(int(file.Fd()), "the namespace", []attachment{{SkLookup, unix.BPF_SK_LOOKUP}})
}

// BPF_NETKIT_PRIMARY and BPF_NETKIT_PEER of linux/bpf.h.
const (
	attachNetkitPrimary = 54
	attachNetkitPeer    = 55
)

// addInterfaces adds the programs at the interfaces of the thread's namespace.
func (l *Listing) addInterfaces() {
	h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		l.addUnread("interfaces", err)
		return
	}
	defer h.Close()
	links, err := h.LinkList()
	if err != nil {
		l.addUnread("interfaces", err)
	}
	for _, i := range links {
		a := i.Attrs()
		place := "interface " + a.Name
		if a.Xdp != nil && a.Xdp.Attached {
			l.add(XDP, place, a.Xdp.ProgId)
		}
		l.addFilters(h, i, place)
		attachments := []attachment{
			{TCXIngress, unix.BPF_TCX_INGRESS}, {TCXEgress, unix.BPF_TCX_EGRESS},
		}
		if i.Type() == "netkit" {
			attachments = append(attachments, attachment{NetkitPrimary, attachNetkitPrimary},
				attachment{NetkitPeer, attachNetkitPeer})
		}
		l.query(a.Index, place, attachments)
	}
}

// addFilters adds the programs of tc.
func (l *Listing) addFilters(h *netlink.Handle, i netlink.Link, place string) {
	for hook, parent := range map[Hook]uint32{
		TCIngress: netlink.HANDLE_MIN_INGRESS, TCEgress: netlink.HANDLE_MIN_EGRESS,
	} {
		addFilters, err := h.FilterList(i, parent)
		if err != nil {
			continue // the interface has no clsact
		}
		for _, f := range addFilters {
			if p, ok := f.(*netlink.BpfFilter); ok {
				l.add(hook, place, uint32(p.Id))
			}
		}
	}
}
