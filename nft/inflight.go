package nft

import "golang.org/x/sys/unix"

// membarrierGlobal is MEMBARRIER_CMD_GLOBAL.
const membarrierGlobal = 1

// WaitForPackets waits until every packet that was traversing a hook at the time of the call has
// left it. This takes about ten milliseconds.
//
// A packet traverses the chains that its hook had when the packet entered it. Therefore a packet
// traverses neither the new nor the old rules if it enters the hook before new chains are created,
// and reaches the old chains after these were emptied. Call WaitForPackets between these two
// changes.
//
// The kernel calls hooks in RCU read-side critical sections. Closing a packet socket waits until
// all current sections have ended (synchronize_net). Without CAP_NET_RAW, WaitForPackets uses
// membarrier(2), which has the same effect (synchronize_rcu), unless the host has a single CPU, or
// CPUs without scheduling ticks (nohz_full). If neither is possible, WaitForPackets returns
// immediately. Then a packet escapes both the new and the old rules if it stays in its hook for
// longer than the two changes take.
func WaitForPackets() {
	if socket, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0); err == nil {
		_ = unix.Close(socket)
		return
	}
	_, _, _ = unix.Syscall(unix.SYS_MEMBARRIER, membarrierGlobal, 0, 0)
}
