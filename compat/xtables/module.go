package xtables

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// loadModule makes the kernel load its module of the family, without which it does not support
// these options. It is the only module for rules that the kernel does not load automatically:
// iptables runs modprobe for it. loadModule requests a network device with the module's name, which
// does not exist; the kernel then loads a module with that name (dev_load in net/core/dev_ioctl.c).
// Without CAP_SYS_MODULE in the initial user namespace it does not, and does not report this, so
// the caller repeats its request in any case.
func (c *conn) loadModule() {
	var request [40]byte // struct ifreq
	copy(request[:unix.IFNAMSIZ-1], c.module)
	_, _, _ = unix.Syscall(unix.SYS_IOCTL, uintptr(c.fd), unix.SIOCGIFFLAGS,
		uintptr(unsafe.Pointer(&request[0])))
}
