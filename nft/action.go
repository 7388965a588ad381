package nft

import (
	"fmt"

	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/rules"
)

// verdicts maps the model's verdicts to the kernel's codes.
var verdicts = [...]expr.VerdictKind{
	rules.Accept: expr.VerdictAccept, rules.Drop: expr.VerdictDrop,
	rules.Return: expr.VerdictReturn,
}

// addAction adds the expressions of an action.
func (x *expressions) addAction(a rules.Action) error {
	switch a := a.(type) {
	case rules.Verdict:
		x.addVerdict(verdicts[a], "")
	case rules.Jump:
		kind := expr.VerdictJump
		if a.Goto {
			kind = expr.VerdictGoto
		}
		x.addVerdict(kind, a.Chain)
	case rules.RedirectTo:
		x.addImmediate(portBytes(a.Port))
		x.addRedirect()
	case rules.SNATTo:
		x.addImmediate(a.Addr.AsSlice())
		x.add(&expr.NAT{
			Type: expr.NATTypeSourceNAT, Family: uint32(nfproto(rules.FamilyOf(a.Addr))),
			RegAddrMin: register, RegAddrMax: register,
		})
	case rules.TProxy:
		x.addImmediate(portBytes(a.Port))
		x.add(&expr.TProxy{Family: x.tproxyFamily(), RegPort: register})
	case rules.SetMark:
		if a.Mask == ^uint32(0) {
			x.addImmediate(hostBytes(a.Value))
		} else {
			x.addMeta(expr.MetaKeyMARK)
			x.addBitwise(hostBytes(^a.Mask), hostBytes(a.Value))
		}
		x.addSetMeta(expr.MetaKeyMARK)
	case rules.SaveMark:
		x.addMeta(expr.MetaKeyMARK)
		x.addSetCT(expr.CtKeyMARK)
	case rules.RestoreMark:
		x.addCT(expr.CtKeyMARK)
		x.addSetMeta(expr.MetaKeyMARK)
	case rules.MixMark:
		return x.addMixMark(a)
	case rules.SetZone:
		if a.Helper != "" {
			return fmt.Errorf("the nf_tables encoder does not support the action %s", a)
		}
		x.addImmediate(native.AppendUint16(nil, a.Zone))
		x.addSetCT(expr.CtKeyZONE)
	case rules.Count:
		x.add(&expr.Counter{Packets: x.hits.Packets, Bytes: x.hits.Bytes})
		x.hits = rules.Hits{} // further counters of the rule start at 0
	default:
		return fmt.Errorf("the nf_tables encoder does not support the action %s", a)
	}
	return nil
}

// addMixMark adds the expressions of a MixMark. nf_tables can compute the packet's mark from the
// connection's mark, and the connection's mark from a constant or from one of the two marks.
// [rules.SetMark] represents the packet's mark computed from a constant or from its old value.
func (x *expressions) addMixMark(a rules.MixMark) error {
	switch {
	case a.Mark != 0 && a.ConntrackMark != 0, !a.Conntrack && a.ConntrackMark == 0:
		return fmt.Errorf("the nf_tables encoder does not support the action %s", a)
	case a.Mark != 0:
		x.addMeta(expr.MetaKeyMARK)
		x.addBitwise(hostBytes(a.Mark), hostBytes(a.Xor))
	case a.ConntrackMark != 0:
		x.addCT(expr.CtKeyMARK)
		x.addBitwise(hostBytes(a.ConntrackMark), hostBytes(a.Xor))
	default:
		x.addImmediate(hostBytes(a.Xor))
	}
	if a.Conntrack {
		x.addSetCT(expr.CtKeyMARK)
	} else {
		x.addSetMeta(expr.MetaKeyMARK)
	}
	return nil
}

// tproxyFamily returns the family of the sockets that tproxy looks up. In an inet table, tproxy
// looks up sockets of the family of each packet.
func (x *expressions) tproxyFamily() byte {
	if x.family == rules.Inet {
		return unix.NFPROTO_UNSPEC
	}
	return nfproto(x.family)
}
