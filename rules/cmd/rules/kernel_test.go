package main

import (
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// withoutNetfilter makes the kernel respond to this process like a kernel without nfnetlink, and
// thus without nf_tables. It installs a seccomp filter for socket(2).
func withoutNetfilter() {
	const (
		// These are offsets in struct seccomp_data.
		number   = 0           // of the system call
		domain   = 16          // args[0]
		protocol = domain + 16 // args[2]

		load       = unix.BPF_LD | unix.BPF_W | unix.BPF_ABS
		jumpEqual  = unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K
		result     = unix.BPF_RET | unix.BPF_K
		setFilter  = 1 // SECCOMP_SET_MODE_FILTER
		allThreads = 1 // SECCOMP_FILTER_FLAG_TSYNC
	)
	filter := []unix.SockFilter{
		{Code: load, K: number},
		{Code: jumpEqual, Jf: 5, K: unix.SYS_SOCKET},
		{Code: load, K: domain},
		{Code: jumpEqual, Jf: 3, K: unix.AF_NETLINK},
		{Code: load, K: protocol},
		{Code: jumpEqual, Jf: 1, K: unix.NETLINK_NETFILTER},
		{Code: result, K: unix.SECCOMP_RET_ERRNO | uint32(unix.EPROTONOSUPPORT)},
		{Code: result, K: unix.SECCOMP_RET_ALLOW},
	}
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	_, _, errno := unix.Syscall(unix.SYS_SECCOMP, setFilter, allThreads,
		uintptr(unsafe.Pointer(&program)))
	if errno != 0 {
		panic(os.NewSyscallError("seccomp", errno))
	}
}
