package nft

import (
	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/rules"
)

// These read the expressions that send a packet elsewhere. Port 0 stands for the packet's own, or for any.

func (d *ruleDecoder) redirect(a attributes) error {
	port, ok := numberKey[uint16](d.load(a, unix.NFTA_REDIR_REG_PROTO_MIN).constant)
	last, sameLast := numberKey[uint16](d.load(a, unix.NFTA_REDIR_REG_PROTO_MAX).constant)
	if !ok || port == 0 || sameLast && last != port || a.number(unix.NFTA_REDIR_FLAGS)&^natRangeProtoSpecified != 0 {
		return errUnsupported
	}
	d.act(rules.RedirectTo{Port: port})
	return nil
}

// nat reads a translation that leaves the address as it is.
func (d *ruleDecoder) nat(a attributes) error {
	port, ok := numberKey[uint16](d.load(a, unix.NFTA_NAT_REG_PROTO_MIN).constant)
	last, sameLast := numberKey[uint16](d.load(a, unix.NFTA_NAT_REG_PROTO_MAX).constant)
	if !ok || port == 0 || sameLast && last != port || a.number(unix.NFTA_NAT_TYPE) != unix.NFT_NAT_DNAT ||
		a.get(unix.NFTA_NAT_REG_ADDR_MIN) != nil || a.number(unix.NFTA_NAT_FLAGS)&^natRangeProtoSpecified != 0 {
		return errUnsupported
	}
	if err := d.limit(a.number(unix.NFTA_NAT_FAMILY)); err != nil {
		return err
	}
	d.act(rules.DNATPort{Port: port})
	return nil
}

func (d *ruleDecoder) tproxy(a attributes) error {
	port, ok := numberKey[uint16](d.load(a, nftaTProxyRegPort).constant)
	if !ok || port == 0 || a.get(nftaTProxyRegAddr) != nil {
		return errUnsupported
	}
	if err := d.limit(a.number(nftaTProxyFamily)); err != nil {
		return err
	}
	d.act(rules.TProxy{Port: port})
	return nil
}

// limit says that packets of other families than the kernel's number do not come further in the rule.
func (d *ruleDecoder) limit(nfproto uint32) error {
	f, ok := familyOf(uint8(nfproto))
	switch {
	case nfproto == unix.NFPROTO_UNSPEC:
		return nil
	case !ok || nfproto > 0xff:
		return errUnsupported
	case f == rules.Inet || f == d.family:
		return nil
	case d.family != rules.Inet:
		return errUnsupported
	}
	d.family = f
	return d.add(rules.MatchFamily{Family: f})
}
