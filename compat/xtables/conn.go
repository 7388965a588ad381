package xtables

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/nft/netns"
)

// Socket options. Both families use the same numbers (linux/netfilter_ipv4/ip_tables.h).
const (
	optionReplace     = 64 // IPT_SO_SET_REPLACE
	optionAddCounters = 65 // IPT_SO_SET_ADD_COUNTERS
	optionGetInfo     = 64 // IPT_SO_GET_INFO
	optionGetEntries  = 65 // IPT_SO_GET_ENTRIES
)

// Sizes of the structures of the options, without the entries or counters that follow them.
const (
	infoSize        = nameSize + 4 + 2*4*hookCount + 8   // struct ipt_getinfo
	getEntriesSize  = nameSize + 8                       // struct ipt_get_entries, padded
	replaceSize     = nameSize + 12 + 2*4*hookCount + 12 // struct ipt_replace
	addCountersSize = nameSize + 8                       // struct xt_counters_info, padded
	countersPointer = replaceSize - 8                    // offset in struct ipt_replace
)

// ErrChanged means that another process has changed the table since it was read. Read the table
// again and repeat the change.
var ErrChanged = errors.New("another process changed the table after it was read")

// ErrTooLarge means that the tables to read exceed the limit of a [Reader]. Their content is
// unknown.
var ErrTooLarge = errors.New("the tables exceed the limit of 32 MiB, in which each entry counts its" +
	" size and 192 bytes: delete the rules that are not needed")

// conn is a socket for the options of one table.
type conn struct {
	*layout
	table string
	fd    int
	// getOnce is getsockopt, except in tests.
	getOnce func(option int, b []byte) error
	// maxCost is the maximum cost of the table to read; see costOf. deadline ends the attempts to
	// read it. There is at least one attempt.
	maxCost  int
	deadline time.Time
}

// withConn calls use with a socket in the namespace for the options of a table.
func (l *layout) withConn(ns *netns.NS, table string, use func(*conn) error) error {
	return ns.Do(func() error {
		// The options exist for all sockets of the family. iptables uses a raw socket, which needs
		// CAP_NET_RAW.
		fd, err := unix.Socket(l.domain, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return os.NewSyscallError("socket", err)
		}
		defer func() { _ = unix.Close(fd) }()
		c := &conn{layout: l, table: table, fd: fd, maxCost: maxCost, deadline: time.Now().Add(maxReadTime)}
		c.getOnce = c.getsockopt
		return use(c)
	})
}

// withTable calls use with a socket in the namespace (nil: the current one) for the table. The
// error names the namespace, the table and the operation.
func withTable(ns *netns.NS, operation string, id ID, use func(*conn) error) error {
	l, err := layoutOf(id.Family)
	switch {
	case err != nil:
	case strconv.IntSize != 64:
		err = errors.New("supported only in 64-bit processes, but this process is " + runtime.GOARCH)
	case id.Name == "" || len(id.Name) >= nameSize:
		err = fmt.Errorf("%q is not a table name: must have 1 to %d bytes", id.Name, nameSize-1)
	default:
		err = l.withConn(ns, id.Name, use)
	}
	if err == nil {
		return nil
	}
	table := id.String()
	if ns != nil {
		table = ns.String() + ": " + table
	}
	return fmt.Errorf("%s: %s: %w%s", table, operation, err, likelyCause(err))
}

// likelyCause returns the likely cause of an errno of these options, as the end of a message.
func likelyCause(err error) string {
	switch {
	case errors.Is(err, unix.EPERM):
		return "; the process needs CAP_NET_ADMIN in the user namespace that owns the network namespace"
	case errors.Is(err, unix.EAFNOSUPPORT):
		return "; the kernel does not support the address family"
	case errors.Is(err, unix.ENOPROTOOPT):
		return "; the kernel has no iptables-legacy, or its module is not loaded and this process" +
			" may not load it (CAP_SYS_MODULE)"
	}
	return ""
}

// newBuffer returns a buffer that begins with the name of the table, like the structures of all
// options.
func (c *conn) newBuffer(size int) []byte {
	b := make([]byte, size)
	copy(b, c.table)
	return b
}

// get reads an option into the buffer, which must begin with the request. It loads the kernel
// module if necessary.
func (c *conn) get(option int, b []byte) error {
	err := c.getOnce(option, b)
	if errors.Is(err, unix.ENOPROTOOPT) {
		c.requestModule()
		err = c.getOnce(option, b)
	}
	return err
}

// getsockopt is like get, but does not load the kernel module.
func (c *conn) getsockopt(option int, b []byte) error {
	length := uint32(len(b))
	_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(c.fd), uintptr(c.level),
		uintptr(option), uintptr(unsafe.Pointer(&b[0])), uintptr(unsafe.Pointer(&length)), 0)
	if errno != 0 {
		return os.NewSyscallError("getsockopt", errno)
	}
	return nil
}

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

// set writes an option.
func (c *conn) set(option int, b []byte) error {
	_, _, errno := unix.Syscall6(unix.SYS_SETSOCKOPT, uintptr(c.fd), uintptr(c.level),
		uintptr(option), uintptr(unsafe.Pointer(&b[0])), uintptr(len(b)), 0)
	if errno != 0 {
		return os.NewSyscallError("setsockopt", errno)
	}
	return nil
}

// maxReads is the maximum number of attempts to read a table while other processes change it. The
// attempts are retryInterval apart. maxReadTime bounds the time of all attempts for all tables of a
// [Reader].
const (
	maxReads      = 100
	maxReadTime   = 3 * time.Second
	retryInterval = time.Millisecond
)

// maxCost bounds the cost of the tables that a [Reader] returns. This limits the memory that they
// need, which TestMemoryOfTheLargestRulesets of package audit measures. Without a bound, a process
// of the pod could exhaust the memory of the reader. The kernel's own limit is 512 MiB for each
// table.
const maxCost = 32 << 20

// entryCost is counted for each entry in addition to its size, for the decoded rule.
const entryCost = 192

// costOf returns the cost of a table. size is the size of all entries in bytes.
func costOf(o offsets, size int) int { return size + entryCost*int(o.count) }

// readBlob reads the table. The kernel returns offsets and entries separately. Therefore readBlob
// reads the offsets before and after the entries, and repeats the read if they differ. If the cost
// of the table exceeds the limit, readBlob returns ErrTooLarge and does not read the entries.
func (c *conn) readBlob() (*blob, error) {
	var buf []byte
	current, size, err := c.info()
	for reads := 0; reads == 0 || reads < maxReads && time.Now().Before(c.deadline); reads++ {
		if err == nil && costOf(current, size) > c.maxCost {
			err = ErrTooLarge
		}
		if err != nil {
			return nil, err
		}
		if reads > 0 {
			time.Sleep(retryInterval)
		}
		if length := getEntriesSize + size; length <= cap(buf) {
			buf = buf[:length]
		} else {
			buf = c.newBuffer(length)
		}
		byteOrder.PutUint32(buf[nameSize:], uint32(size))
		getErr := c.get(optionGetEntries, buf)
		if getErr != nil && !errors.Is(getErr, unix.EAGAIN) { // EAGAIN: the size has changed
			return nil, getErr
		}
		before, sizeBefore := current, size
		current, size, err = c.info()
		if err == nil && getErr == nil && before == current && sizeBefore == size {
			return &blob{current, buf[getEntriesSize:]}, nil
		}
	}
	return nil, errBusy
}

// errBusy is the error if the table changes during every attempt to read it.
var errBusy = errors.New("the table changed during every attempt to read it:" +
	" another process changes it continuously")

// info reads the offsets of the table and the size of its entries in bytes.
func (c *conn) info() (offsets, int, error) {
	var o offsets
	buf := c.newBuffer(infoSize)
	if err := c.get(optionGetInfo, buf); err != nil {
		return o, 0, err
	}
	field := func(n int) uint32 { return byteOrder.Uint32(buf[nameSize+4*n:]) }
	o.validHooks, o.count = field(0), field(1+2*hookCount)
	for h := range hookCount {
		if o.validHooks&(1<<h) != 0 { // otherwise the kernel's number is undefined
			o.hookEntry[h], o.underflow[h] = field(1+h), field(1+hookCount+h)
		}
	}
	return o, int(field(2 + 2*hookCount)), nil
}
