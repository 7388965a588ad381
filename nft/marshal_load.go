package nft

import (
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// writeLoad encodes an expression that loads a value other than a part of the packet: fib, socket,
// numgen, hash or rt. It reports whether the expression is such a load. Attributes are in the order
// of the kernel's dumps.
func (e *encoder) writeLoad(x expr.Any) bool {
	switch x := x.(type) {
	case *expr.Fib:
		e.writeAttributes("fib", []numberAttribute{
			{unix.NFTA_FIB_DREG, x.Register},
			{unix.NFTA_FIB_RESULT, fibResult(x)},
			{unix.NFTA_FIB_FLAGS, fibFlags(x)},
		})
	case *expr.Socket:
		attrs := []numberAttribute{{nftaSocketKey, uint32(x.Key)}, {nftaSocketDreg, x.Register}}
		if x.Key == expr.SocketKeyCgroupv2 {
			attrs = append(attrs, numberAttribute{nftaSocketLevel, x.Level})
		}
		e.writeAttributes("socket", attrs)
	case *expr.Numgen:
		e.writeAttributes("numgen", []numberAttribute{
			{unix.NFTA_NG_DREG, x.Register},
			{unix.NFTA_NG_MODULUS, x.Modulus},
			{unix.NFTA_NG_TYPE, x.Type},
			{unix.NFTA_NG_OFFSET, x.Offset},
		})
	case *expr.Hash:
		e.writeHash(x)
	case *expr.Rt:
		e.writeAttributes("rt", []numberAttribute{
			{unix.NFTA_RT_KEY, uint32(x.Key)}, {unix.NFTA_RT_DREG, x.Register},
		})
	default:
		return false
	}
	return true
}

// writeHash encodes a hash. Only a Jenkins hash has a source register.
func (e *encoder) writeHash(x *expr.Hash) {
	var attrs []numberAttribute
	if x.Type == expr.HashTypeJenkins {
		attrs = []numberAttribute{{unix.NFTA_HASH_SREG, x.SourceRegister}}
	}
	attrs = append(attrs, numberAttribute{unix.NFTA_HASH_DREG, x.DestRegister})
	if x.Type == expr.HashTypeJenkins {
		attrs = append(attrs, numberAttribute{unix.NFTA_HASH_LEN, x.Length})
	}
	attrs = append(attrs, numberAttribute{unix.NFTA_HASH_MODULUS, x.Modulus})
	if x.Seed != 0 { // without a seed the kernel chooses one
		attrs = append(attrs, numberAttribute{unix.NFTA_HASH_SEED, x.Seed})
	}
	if x.Offset != 0 {
		attrs = append(attrs, numberAttribute{unix.NFTA_HASH_OFFSET, x.Offset})
	}
	e.writeAttributes("hash", append(attrs, numberAttribute{unix.NFTA_HASH_TYPE, uint32(x.Type)}))
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

// fibFlags returns the flags of the inputs of a fib lookup.
func fibFlags(x *expr.Fib) uint32 {
	return flagIf(x.FlagSADDR, unix.NFTA_FIB_F_SADDR) | flagIf(x.FlagDADDR, unix.NFTA_FIB_F_DADDR) |
		flagIf(x.FlagMARK, unix.NFTA_FIB_F_MARK) | flagIf(x.FlagIIF, unix.NFTA_FIB_F_IIF) |
		flagIf(x.FlagOIF, unix.NFTA_FIB_F_OIF) | flagIf(x.FlagPRESENT, unix.NFTA_FIB_F_PRESENT)
}
