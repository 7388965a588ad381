package nft

import (
	"fmt"

	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// decodeFIB decodes a lookup in the routing tables. The model supports the type of an address, and
// the interface or existence of the reverse path.
func (d *ruleDecoder) decodeFIB(a attributes) error {
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
	op.data = d.indexData("fib", a)
	return d.store(a, unix.NFTA_FIB_DREG, op)
}

// decodeSocket decodes the load of the transparent flag of the packet's socket, or of the number of
// its cgroup. The expression ends the rule for a packet without a socket.
func (d *ruleDecoder) decodeSocket(a attributes) error {
	switch expr.SocketKey(a.Number(expr.NFTA_SOCKET_KEY)) {
	case expr.SocketKeyTransparent:
	case expr.SocketKeyCgroupv2:
		level := a.Number(expr.NFTA_SOCKET_LEVEL)
		op := loadedField(fieldCgroup, 8, fmt.Sprintf("socket cgroupv2 level %d", level))
		op.constant = []byte{byte(level)}
		return d.storePending(a, expr.NFTA_SOCKET_DREG, op)
	default:
		return errUnsupported
	}
	return d.storePending(a, expr.NFTA_SOCKET_DREG,
		loadedField(fieldTransparentSocket, 1, "socket transparent"))
}

// cgroupKey returns the number of the cgroup if the keys are exactly one cgroup.
func cgroupKey(keys []keyInterval) (uint64, bool) {
	if len(keys) != 1 || !isSingle(keys[0]) || len(keys[0].first) != 8 {
		return 0, false
	}
	return native.Uint64(keys[0].first), true
}
