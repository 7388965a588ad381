package nft

import (
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// writeLoad encodes an expression that loads a value which is not a field of the packet. It reports
// whether the expression is such a load. Attributes are in the order of the kernel's dumps.
func (e *encoder) writeLoad(x expr.Any) bool {
	switch x := x.(type) {
	case *expr.Fib:
		e.writeAttributes("fib", []attribute{
			{unix.NFTA_FIB_DREG, x.Register},
			{unix.NFTA_FIB_RESULT, fibResult(x)},
			{unix.NFTA_FIB_FLAGS, fibFlags(x)},
		})
	case *expr.Socket:
		list := []attribute{{nftaSocketKey, uint32(x.Key)}, {nftaSocketDreg, x.Register}}
		if x.Key == expr.SocketKeyCgroupv2 {
			list = append(list, attribute{nftaSocketLevel, x.Level})
		}
		e.writeAttributes("socket", list)
	case *expr.Numgen:
		e.writeAttributes("numgen", []attribute{
			{unix.NFTA_NG_DREG, x.Register},
			{unix.NFTA_NG_MODULUS, x.Modulus},
			{unix.NFTA_NG_TYPE, x.Type},
			{unix.NFTA_NG_OFFSET, x.Offset},
		})
	case *expr.Hash:
		e.writeHash(x)
	default:
		return false
	}
	return true
}

func (e *encoder) writeHash(x *expr.Hash) {
	var list []attribute
	if x.Type == expr.HashTypeJenkins {
		list = []attribute{{unix.NFTA_HASH_SREG, x.SourceRegister}}
	}
	list = append(list, attribute{unix.NFTA_HASH_DREG, x.DestRegister})
	if x.Type == expr.HashTypeJenkins {
		list = append(list, attribute{unix.NFTA_HASH_LEN, x.Length})
	}
	list = append(list, attribute{unix.NFTA_HASH_MODULUS, x.Modulus})
	if x.Seed != 0 { // otherwise the kernel chooses one
		list = append(list, attribute{unix.NFTA_HASH_SEED, x.Seed})
	}
	if x.Offset != 0 {
		list = append(list, attribute{unix.NFTA_HASH_OFFSET, x.Offset})
	}
	e.writeAttributes("hash", append(list, attribute{unix.NFTA_HASH_TYPE, uint32(x.Type)}))
}

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

func fibFlags(x *expr.Fib) uint32 {
	flags := uint32(0)
	for flag, isSet := range map[uint32]bool{
		unix.NFTA_FIB_F_SADDR: x.FlagSADDR, unix.NFTA_FIB_F_DADDR: x.FlagDADDR,
		unix.NFTA_FIB_F_MARK: x.FlagMARK, unix.NFTA_FIB_F_IIF: x.FlagIIF,
		unix.NFTA_FIB_F_OIF: x.FlagOIF, unix.NFTA_FIB_F_PRESENT: x.FlagPRESENT,
	} {
		if isSet {
			flags |= flag
		}
	}
	return flags
}
