package nft

import "golang.org/x/sys/unix"

// membarrierGlobal is MEMBARRIER_CMD_GLOBAL.
const membarrierGlobal = 1

// WaitForPackets returns when every packet that was traversing a hook at the time of the call has
// left it; this takes some ten milliseconds.
//
// A packet keeps the list of chains that its hook had when it entered. So a packet that entered
// before chains were created, and reaches the old ones after they were deleted or emptied,
// traverses neither. Between the two changes, wait.
//
// The kernel calls hooks in RCU read-side critical sections, and waits for their end when a packet
// socket is closed (synchronize_net). Without CAP_NET_RAW, membarrier(2) waits for the same
// (synchronize_rcu), unless the host has a single CPU, or CPUs without scheduling ticks
// (nohz_full). If neither is possible, WaitForPackets returns at once: then only a packet that
// takes longer through its hook than two changes take can traverse neither.
func WaitForPackets() {
	if socket, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0); err == nil {
		_ = unix.Close(socket)
		return
	}
	_, _, _ = unix.Syscall(unix.SYS_MEMBARRIER, membarrierGlobal, 0, 0)
}
