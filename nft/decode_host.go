package nft

import (
	"golang.org/x/sys/unix"
)

// fib decodes a lookup in the routing tables.
func (d *ruleDecoder) fib(a attributes) error {
	result, flags := a.Number(unix.NFTA_FIB_RESULT), a.Number(unix.NFTA_FIB_FLAGS)
	op := operand{}
	switch {
	case result == unix.NFT_FIB_RESULT_ADDRTYPE && flags == unix.NFTA_FIB_F_SADDR:
		op = loadedField(fieldSourceType, 4, "fib saddr type")
	case result == unix.NFT_FIB_RESULT_ADDRTYPE && flags == unix.NFTA_FIB_F_DADDR:
		op = loadedField(fieldDestinationType, 4, "fib daddr type")
	case result == unix.NFT_FIB_RESULT_OIF:
		const reverse = unix.NFTA_FIB_F_SADDR | unix.NFTA_FIB_F_IIF
		switch flags &^ unix.NFTA_FIB_F_PRESENT {
		case reverse:
			op = loadedField(fieldReversePathIndex, 4, "fib saddr . iif oif")
		case reverse | unix.NFTA_FIB_F_MARK:
			op = loadedField(fieldReversePathIndex, 4, "fib saddr . mark . iif oif")
			op.constant = []byte("mark")
		default:
			return errUnsupported
		}
		if flags&unix.NFTA_FIB_F_PRESENT != 0 {
			op.field = fieldReversePath
		}
	}
	return d.store(a, unix.NFTA_FIB_DREG, op)
}

// socket decodes the load of the transparent flag of the packet's socket. The expression ends the
// rule for a packet without a socket.
func (d *ruleDecoder) socket(a attributes) error {
	if a.Number(nftaSocketKey) != 0 { // NFT_SOCKET_TRANSPARENT
		return errUnsupported
	}
	return d.storePending(a, nftaSocketDreg,
		loadedField(fieldTransparentSocket, 1, "socket transparent"))
}
