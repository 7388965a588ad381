package xtables

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// requestModule makes the kernel load ip_tables or ip6_tables, which implements the socket options
// for reading and replacing tables. The kernel loads all other modules for rules automatically;
// iptables runs modprobe for this module.
//
// requestModule requests a network device with the module's name. Because the device does not
// exist, the kernel loads the module with that name (dev_load in net/core/dev_ioctl.c), but only if
// the process has CAP_SYS_MODULE in the initial user namespace. The kernel does not report whether
// it has loaded the module. The caller must therefore repeat its request.
func (c *conn) requestModule() {
	var request [40]byte // struct ifreq
	copy(request[:unix.IFNAMSIZ-1], c.module)
	_, _, _ = unix.Syscall(unix.SYS_IOCTL, uintptr(c.fd), unix.SIOCGIFFLAGS,
		uintptr(unsafe.Pointer(&request[0])))
}
