package nft

import (
	"slices"

	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// marshalOther begins an expression that is rare in rulesets of [rules.Compile], and adds its
// attributes in the order of the kernel's dumps. These are actions other than verdicts, loads of
// values that are not part of the packet, and expressions with a state that packets change. It
// reports whether the type of the expression is known.
func (e *encoder) marshalOther(x expr.Any) (known bool, err error) {
	switch x := x.(type) {
	case *expr.Redir:
		e.beginExpression("redir")
		e.addRange(unix.NFTA_REDIR_REG_PROTO_MIN, unix.NFTA_REDIR_REG_PROTO_MAX,
			x.RegisterProtoMin, x.RegisterProtoMax)
		e.addNonZero(unix.NFTA_REDIR_FLAGS, x.Flags)
	case *expr.NAT:
		e.beginExpression("nat")
		e.addNumber(unix.NFTA_NAT_TYPE, uint32(x.Type))
		e.addNumber(unix.NFTA_NAT_FAMILY, x.Family)
		e.addRange(unix.NFTA_NAT_REG_ADDR_MIN, unix.NFTA_NAT_REG_ADDR_MAX, x.RegAddrMin, x.RegAddrMax)
		e.addRange(unix.NFTA_NAT_REG_PROTO_MIN, unix.NFTA_NAT_REG_PROTO_MAX,
			x.RegProtoMin, x.RegProtoMax)
		e.addNonZero(unix.NFTA_NAT_FLAGS, rangeFlags(x.Random, x.FullyRandom, x.Persistent)|
			flagIf(x.Prefix, unix.NF_NAT_RANGE_NETMAP)|
			flagIf(x.RegAddrMin != 0, unix.NF_NAT_RANGE_MAP_IPS)|
			flagIf(x.RegProtoMin != 0, unix.NF_NAT_RANGE_PROTO_SPECIFIED))
	case *expr.Masq: // unlike in the other expressions, the flags precede the ports
		e.beginExpression("masq")
		e.addNonZero(unix.NFTA_MASQ_FLAGS, rangeFlags(x.Random, x.FullyRandom, x.Persistent)|
			flagIf(x.RegProtoMin != 0, unix.NF_NAT_RANGE_PROTO_SPECIFIED))
		e.addRange(unix.NFTA_MASQ_REG_PROTO_MIN, unix.NFTA_MASQ_REG_PROTO_MAX,
			x.RegProtoMin, x.RegProtoMax)
	case *expr.TProxy:
		e.beginExpression("tproxy")
		e.addNumber(expr.NFTA_TPROXY_FAMILY, uint32(x.Family))
		e.addNonZero(expr.NFTA_TPROXY_REG_ADDR, x.RegAddr)
		e.addNonZero(expr.NFTA_TPROXY_REG_PORT, x.RegPort)
	case *expr.Reject:
		e.beginExpression("reject")
		e.addNumber(unix.NFTA_REJECT_TYPE, x.Type)
		if x.Type != unix.NFT_REJECT_TCP_RST {
			e.addAttr(unix.NFTA_REJECT_ICMP_CODE, []byte{x.Code})
		}
	case *expr.Notrack:
		e.beginExpression("notrack")
	case *expr.Log:
		e.beginExpression("log")
	case *expr.Fib:
		e.beginExpression("fib")
		e.addNumber(unix.NFTA_FIB_DREG, x.Register)
		e.addNumber(unix.NFTA_FIB_RESULT, fibResult(x))
		e.addNumber(unix.NFTA_FIB_FLAGS, fibFlags(x))
	case *expr.Socket:
		e.beginExpression("socket")
		e.addNumber(expr.NFTA_SOCKET_KEY, uint32(x.Key))
		e.addNumber(expr.NFTA_SOCKET_DREG, x.Register)
		if x.Key == expr.SocketKeyCgroupv2 {
			e.addNumber(expr.NFTA_SOCKET_LEVEL, x.Level)
		}
	case *expr.Numgen:
		e.beginExpression("numgen")
		e.addNumber(unix.NFTA_NG_DREG, x.Register)
		e.addNumber(unix.NFTA_NG_MODULUS, x.Modulus)
		e.addNumber(unix.NFTA_NG_TYPE, x.Type)
		e.addNumber(unix.NFTA_NG_OFFSET, x.Offset)
	case *expr.Hash:
		e.beginHash(x)
	case *expr.Rt:
		e.beginExpression("rt")
		e.addNumber(unix.NFTA_RT_KEY, uint32(x.Key))
		e.addNumber(unix.NFTA_RT_DREG, x.Register)
	case *expr.Limit:
		e.beginExpression("limit")
		e.addNumber64(unix.NFTA_LIMIT_RATE, x.Rate)
		e.addNumber64(unix.NFTA_LIMIT_UNIT, uint64(x.Unit))
		e.addNumber(unix.NFTA_LIMIT_BURST, x.Burst)
		e.addNumber(unix.NFTA_LIMIT_TYPE, uint32(x.Type))
		e.addNumber(unix.NFTA_LIMIT_FLAGS, flagIf(x.Over, unix.NFT_LIMIT_F_INV))
	case *expr.Quota:
		e.beginExpression("quota")
		e.addNumber64(unix.NFTA_QUOTA_BYTES, x.Bytes)
		e.addNumber(unix.NFTA_QUOTA_FLAGS, flagIf(x.Over, unix.NFT_QUOTA_F_INV))
	case *expr.Connlimit:
		e.beginExpression("connlimit")
		e.addNumber(expr.NFTA_CONNLIMIT_COUNT, x.Count)
		e.addNumber(expr.NFTA_CONNLIMIT_FLAGS, x.Flags)
	case *expr.Objref:
		e.beginExpression("objref")
		e.addText(unix.NFTA_OBJREF_IMM_NAME, x.Name)
		e.addNumber(unix.NFTA_OBJREF_IMM_TYPE, uint32(x.Type))
	case *expr.Dynset:
		e.beginExpression("dynset")
		e.addNumber(unix.NFTA_DYNSET_SREG_KEY, x.SrcRegKey)
		e.addNumber(unix.NFTA_DYNSET_OP, x.Operation)
		e.addText(unix.NFTA_DYNSET_SET_NAME, x.SetName)
		e.addNumber64(unix.NFTA_DYNSET_TIMEOUT, uint64(x.Timeout.Milliseconds()))
		err = e.addElementExpressions(x.Exprs)
		e.addNumber(unix.NFTA_DYNSET_FLAGS, 0)
	default:
		return false, nil
	}
	return true, err
}

// addRange appends the attributes with the registers of the first and the last address or port of a
// range, or none if first is 0.
func (e *encoder) addRange(minAttr, maxAttr uint16, first, last uint32) {
	if first != 0 {
		e.addNumber(minAttr, first)
		e.addNumber(maxAttr, last)
	}
}

// rangeFlags returns the flags that control how the kernel selects an address or port from a range.
func rangeFlags(random, fullyRandom, persistent bool) uint32 {
	return flagIf(random, unix.NF_NAT_RANGE_PROTO_RANDOM) |
		flagIf(fullyRandom, unix.NF_NAT_RANGE_PROTO_RANDOM_FULLY) |
		flagIf(persistent, unix.NF_NAT_RANGE_PERSISTENT)
}

// beginHash begins a hash expression and adds its attributes. Only a Jenkins hash has a source
// register and a length.
func (e *encoder) beginHash(x *expr.Hash) {
	isJenkins := x.Type == expr.HashTypeJenkins
	e.beginExpression("hash")
	if isJenkins {
		e.addNumber(unix.NFTA_HASH_SREG, x.SourceRegister)
	}
	e.addNumber(unix.NFTA_HASH_DREG, x.DestRegister)
	if isJenkins {
		e.addNumber(unix.NFTA_HASH_LEN, x.Length)
	}
	e.addNumber(unix.NFTA_HASH_MODULUS, x.Modulus)
	e.addNonZero(unix.NFTA_HASH_SEED, x.Seed) // without a seed the kernel chooses one
	e.addNonZero(unix.NFTA_HASH_OFFSET, x.Offset)
	e.addNumber(unix.NFTA_HASH_TYPE, uint32(x.Type))
}

// fibResult returns the kernel's number of the value that a fib expression loads.
func fibResult(x *expr.Fib) uint32 {
	switch {
	case x.ResultOIF:
		return unix.NFT_FIB_RESULT_OIF
	case x.ResultOIFNAME:
		return unix.NFT_FIB_RESULT_OIFNAME
	case x.ResultADDRTYPE:
		return unix.NFT_FIB_RESULT_ADDRTYPE
	}
	return unix.NFT_FIB_RESULT_UNSPEC
}

// fibFlags returns the flags of a fib lookup: its inputs, and whether it only tests for a route.
func fibFlags(x *expr.Fib) uint32 {
	return flagIf(x.FlagSADDR, unix.NFTA_FIB_F_SADDR) | flagIf(x.FlagDADDR, unix.NFTA_FIB_F_DADDR) |
		flagIf(x.FlagMARK, unix.NFTA_FIB_F_MARK) | flagIf(x.FlagIIF, unix.NFTA_FIB_F_IIF) |
		flagIf(x.FlagOIF, unix.NFTA_FIB_F_OIF) | flagIf(x.FlagPRESENT, unix.NFTA_FIB_F_PRESENT)
}

// addElementExpressions encodes the expressions of the elements that a rule adds to a set, such as
// limits and counters. A single expression and a list of several have different attributes.
func (e *encoder) addElementExpressions(list []expr.Any) error {
	if len(list) == 0 {
		return nil
	}
	start := len(e.buf)
	for _, x := range list {
		if err := e.marshal(x); err != nil {
			return err
		}
	}
	attr, expressions := uint16(expr.NFTA_DYNSET_EXPRESSIONS), slices.Clone(e.buf[start:])
	if len(list) == 1 {
		attr = unix.NFTA_DYNSET_EXPR
		expressions = expressions[unix.NLA_HDRLEN:] // without the header of a list item
	}
	e.buf = e.buf[:start]
	n := e.beginNest(attr)
	e.buf = append(e.buf, expressions...)
	e.endNest(n)
	return nil
}
