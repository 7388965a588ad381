package xtables

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// loadModule makes the kernel load its module of the family, without which it knows none of these
// options. Of all modules that the rules need, this is the only one that the kernel does not load
// by itself: iptables executes modprobe. We ask for a network device of that name, of which there
// is none; then the kernel looks for a module that is called so (dev_load in net/core/dev_ioctl.c).
// For a process without CAP_SYS_MODULE in the initial user namespace it does not, which the answer
// does not tell: whoever asks tries again.
func (c *conn) loadModule() {
	var request [40]byte // struct ifreq
	copy(request[:unix.IFNAMSIZ-1], c.module)
	_, _, _ = unix.Syscall(unix.SYS_IOCTL, uintptr(c.fd), unix.SIOCGIFFLAGS,
		uintptr(unsafe.Pointer(&request[0])))
}
