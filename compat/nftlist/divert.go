package nftlist

import (
	"encoding/json"

	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/nft"
)

// tproxy translates the statement tproxy.
func (c *compiler) tproxy(body json.RawMessage) bool {
	var to struct {
		Family     string
		Addr, Port json.RawMessage
	}
	if !exactly(body, &to) || to.Addr == nil && to.Port == nil {
		return false
	}
	family := c.network
	if to.Family != "" {
		if c.network != "" && c.network != to.Family {
			return false
		}
		family = to.Family
	}
	number, known := map[string]byte{
		"": unix.NFPROTO_UNSPEC, "ip": unix.NFPROTO_IPV4, "ip6": unix.NFPROTO_IPV6,
	}[family]
	x := expr.TProxy{Family: number}
	if to.Addr != nil {
		t, ok := map[string]datatype{"ip": ipv4Type, "ip6": ipv6Type}[family]
		addr, isAddr := c.loadConstants(to.Addr, t)
		if x.RegAddr = addr.first; !ok || !isAddr || !isScalar(to.Addr) {
			return false
		}
	}
	port, ok := c.loadPorts(to.Port)
	if x.RegPort = port.first; !ok || port.first != port.last {
		return false
	}
	c.add(&x)
	return known
}

// reject translates the statement reject.
func (c *compiler) reject(body json.RawMessage) bool {
	var with struct {
		Type string
		Expr json.RawMessage
	}
	if isNull(body) {
		with.Type = map[string]string{
			"inet": "icmpx", "ip": "icmp", "ip6": "icmpv6",
		}[c.sets.id.family]
		with.Expr = encode("port-unreachable")
	} else if !exactly(body, &with) {
		return false
	}
	x := expr.Reject{Type: unix.NFT_REJECT_ICMP_UNREACH}
	switch with.Type {
	case "tcp reset":
		x.Type = unix.NFT_REJECT_TCP_RST
		if c.network == "" {
			// nft lists "meta nfproto ipv4 reject with tcp reset" without its condition.
			c.mayOmit("meta nfproto")
		}
		c.add(&x)
		return with.Expr == nil && c.needHeader("tcp")
	case "icmp", "icmpv6":
		if !c.needNetwork(map[string]string{"icmp": "ip", "icmpv6": "ip6"}[with.Type]) {
			return false
		}
	case "icmpx":
		x.Type = unix.NFT_REJECT_ICMPX_UNREACH
	default:
		return false
	}
	code := datatype{size: 1, parse: func(name string) (uint64, bool) {
		n, ok := nft.RejectCode(with.Type, name)
		return uint64(n), ok
	}}
	value, ok := code.scalar(with.Expr, false)
	if ok {
		x.Code = value[0]
	}
	c.add(&x)
	return ok
}
