package bpf

import (
	"fmt"
	"os"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/nft/dump"
	"github.com/sluice-mesh/sluice/nft/netns"
)

// addNamespace adds the programs that are attached to the network namespace of the thread.
func (l *Listing) addNamespace() {
	file, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		l.addUnread("programs of the namespace", err)
		return
	}
	defer func() { _ = file.Close() }()
	l.addAttached(int(file.Fd()), "the namespace", []attachPoint{{SkLookup, unix.BPF_SK_LOOKUP}})
}

// Attach types of linux/bpf.h that package unix lacks.
const (
	attachNetkitPrimary = 54 // BPF_NETKIT_PRIMARY
	attachNetkitPeer    = 55 // BPF_NETKIT_PEER
)

// addInterfaces adds the programs that are attached to the interfaces of the thread's namespace.
func (l *Listing) addInterfaces() {
	h, err := (*netns.NS)(nil).Netlink(unix.NETLINK_ROUTE)
	if err != nil {
		l.addUnread("interfaces", err)
		return
	}
	defer h.Close()
	links, err := dump.Retry(dump.Attempts, h.LinkList)
	if err != nil {
		l.addUnread("interfaces", err)
	}
	for _, i := range links {
		a := i.Attrs()
		object := "interface " + a.Name
		if a.Xdp != nil && a.Xdp.Attached {
			l.addProgram(XDP, object, a.Xdp.ProgId)
		}
		l.addTCFilters(h, i, object)
		points := []attachPoint{
			{TCXIngress, unix.BPF_TCX_INGRESS}, {TCXEgress, unix.BPF_TCX_EGRESS},
		}
		if i.Type() == "netkit" {
			points = append(points, attachPoint{NetkitPrimary, attachNetkitPrimary},
				attachPoint{NetkitPeer, attachNetkitPeer})
		}
		l.addAttached(a.Index, object, points)
	}
}

// addTCFilters adds the eBPF programs among the interface's tc filters, and the filters that are
// not eBPF programs. Filters are attached to the qdiscs clsact and ingress, or to a qdisc with
// classes, which sees outgoing packets.
func (l *Listing) addTCFilters(h *netlink.Handle, i netlink.Link, object string) {
	qdiscs, err := dump.Retry(dump.Attempts, func() ([]netlink.Qdisc, error) { return h.QdiscList(i) })
	if err != nil {
		l.addUnread("qdiscs of "+object, err)
	}
	for _, q := range qdiscs {
		switch handle := q.Attrs().Handle; {
		case q.Type() == "clsact":
			l.addFiltersOf(h, i, netlink.HANDLE_MIN_INGRESS, TCIngress, object)
			l.addFiltersOf(h, i, netlink.HANDLE_MIN_EGRESS, TCEgress, object)
		case q.Type() == "ingress": // for any parent, the kernel lists the same filters
			l.addFiltersOf(h, i, netlink.HANDLE_MIN_INGRESS, TCIngress, object)
		case handle != 0:
			l.addFiltersOf(h, i, handle, TCEgress, object)
		}
	}
}

// addFiltersOf adds the filters with the given parent. A qdisc without classes has no filters.
func (l *Listing) addFiltersOf(
	h *netlink.Handle, i netlink.Link, parent uint32, hook Hook, object string,
) {
	filters, err := dump.Retry(dump.Attempts, func() ([]netlink.Filter, error) {
		return h.FilterList(i, parent)
	})
	if err != nil {
		l.addUnread(fmt.Sprintf("filters of %s at %s", netlink.HandleStr(parent), object), err)
	}
	for _, f := range filters {
		if p, ok := f.(*netlink.BpfFilter); ok {
			l.addProgram(hook, object, uint32(p.Id))
			continue
		}
		other := Filter{hook, i.Attrs().Name, netlink.HandleStr(parent), f.Type()}
		if !slices.Contains(l.Filters, other) {
			l.Filters = append(l.Filters, other)
		}
	}
}
