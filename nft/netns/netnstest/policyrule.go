package netnstest

import (
	"errors"
	"slices"
	"syscall"
	"testing"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/nft/netns"
)

// A PolicyRule is a policy rule with fields for which the ip command or package netlink may have no
// syntax.
type PolicyRule struct {
	Family     uint8 // AF_INET or AF_INET6
	Priority   uint32
	Table      uint8
	Action     uint8 // 0: FR_ACT_TO_TBL
	Attributes []*nl.RtAttr
}

// Add adds the policy rule to the namespace. If the kernel does not know a field, Add skips the
// test.
func (p PolicyRule) Add(t testing.TB, ns *netns.NS) {
	t.Helper()
	header := nl.RtMsg{RtMsg: unix.RtMsg{Family: p.Family, Table: p.Table, Type: p.Action}}
	if p.Action == 0 {
		header.Type = unix.FR_ACT_TO_TBL
	}
	request := nl.NewNetlinkRequest(unix.RTM_NEWRULE,
		unix.NLM_F_CREATE|unix.NLM_F_EXCL|unix.NLM_F_ACK)
	request.AddData(&header)
	request.AddData(nl.NewRtAttr(nl.FRA_PRIORITY, nl.Uint32Attr(p.Priority)))
	for _, a := range p.Attributes {
		request.AddData(a)
	}
	var rules [][]byte
	err := ns.Do(func() error {
		_, err := request.Execute(unix.NETLINK_ROUTE, 0)
		if err != nil {
			return err
		}
		dump := nl.NewNetlinkRequest(unix.RTM_GETRULE, unix.NLM_F_DUMP)
		dump.AddData(&nl.RtMsg{RtMsg: unix.RtMsg{Family: p.Family}})
		rules, err = dump.Execute(unix.NETLINK_ROUTE, unix.RTM_NEWRULE)
		return err
	})
	if errors.Is(err, unix.EINVAL) && len(p.Attributes) > 0 || err == nil && !p.isIn(rules) {
		t.Skip("the kernel does not know a field of the policy rule")
	}
	if err != nil {
		t.Fatal(err)
	}
}

// isIn reports whether one of the rules has attributes of all types. Some kernels ignore attributes
// that they do not know.
func (p PolicyRule) isIn(rules [][]byte) bool {
	return slices.ContainsFunc(rules, func(rule []byte) bool {
		found, err := nl.ParseRouteAttr(rule[unix.SizeofRtMsg:])
		return err == nil && !slices.ContainsFunc(p.Attributes, func(a *nl.RtAttr) bool {
			return !slices.ContainsFunc(found, func(f syscall.NetlinkRouteAttr) bool {
				return f.Attr.Type == a.Type
			})
		})
	})
}
