package xtables

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/nft/netns"
)

// Socket options, the same numbers for both families (linux/netfilter_ipv4/ip_tables.h).
const (
	optionReplace     = 64 // IPT_SO_SET_REPLACE
	optionAddCounters = 65 // IPT_SO_SET_ADD_COUNTERS
	optionInfo        = 64 // IPT_SO_GET_INFO
	optionEntries     = 65 // IPT_SO_GET_ENTRIES
)

// Sizes of the structures of the options, without what follows them.
const (
	infoSize        = nameSize + 4 + 2*4*len(hooks) + 8   // struct ipt_getinfo
	getSize         = nameSize + 8                        // struct ipt_get_entries, padded
	replaceSize     = nameSize + 12 + 2*4*len(hooks) + 12 // struct ipt_replace
	addCountersSize = nameSize + 8                        // struct xt_counters_info, padded
	countersPointer = replaceSize - 8                     // offset in struct ipt_replace
)

// ErrChanged means that another process has changed the table since it was read: read it again and
// repeat.
var ErrChanged = errors.New("another process changed the table meanwhile")

// conn is a socket for the options of one table.
type conn struct {
	*layout
	table string
	fd    int
}

// do runs a function with a socket in the namespace. Its error names the operation and the table.
func do(ns *netns.NS, what string, id ID, use func(*conn) error) error {
	l, err := layoutOf(id.Family)
	switch {
	case err != nil:
	case strconv.IntSize != 64:
		err = errors.New("only a 64-bit process can: this one is for " + runtime.GOARCH)
	case id.Name == "" || len(id.Name) >= nameSize:
		err = fmt.Errorf("%q is no name of a table", id.Name)
	default:
		err = ns.Do(func() error {
			fd, err := unix.Socket(l.domain, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_RAW)
			if err != nil {
				return os.NewSyscallError("socket", err)
			}
			defer func() { _ = unix.Close(fd) }()
			return use(&conn{l, id.Name, fd})
		})
	}
	if err == nil {
		return nil
	}
	where := id.String()
	if ns != nil {
		where = ns.String() + ": " + where
	}
	return fmt.Errorf("%s: %s: %w%s", where, what, err, advise(err))
}

// advise explains an errno of these options.
func advise(err error) string {
	switch {
	case errors.Is(err, unix.EPERM), errors.Is(err, unix.EACCES):
		return "; CAP_NET_ADMIN and CAP_NET_RAW are needed in the user namespace that owns the network namespace"
	case errors.Is(err, unix.ENOPROTOOPT), errors.Is(err, unix.EAFNOSUPPORT):
		return "; the kernel has no iptables-legacy, or its module is not loaded and this process may not load it (CAP_SYS_MODULE)"
	}
	return ""
}

// named returns a buffer that begins with the name of the table, as all structures do.
func (c *conn) named(size int) []byte {
	b := make([]byte, size)
	copy(b, c.table)
	return b
}

// get reads an option into the buffer, whose beginning is the request. It loads the kernel's module
// if necessary.
func (c *conn) get(option int, b []byte) error {
	err := c.getOnce(option, b)
	if errors.Is(err, unix.ENOPROTOOPT) {
		c.loadModule()
		err = c.getOnce(option, b)
	}
	return err
}

func (c *conn) getOnce(option int, b []byte) error {
	length := uint32(len(b))
	_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(c.fd), uintptr(c.level),
		uintptr(option),
		uintptr(unsafe.Pointer(&b[0])), uintptr(unsafe.Pointer(&length)), 0)
	if errno != 0 {
		return os.NewSyscallError("getsockopt", errno)
	}
	return nil
}

// set writes an option.
func (c *conn) set(option int, b []byte) error {
	_, _, errno := unix.Syscall6(unix.SYS_SETSOCKOPT, uintptr(c.fd), uintptr(c.level),
		uintptr(option),
		uintptr(unsafe.Pointer(&b[0])), uintptr(len(b)), 0)
	if errno != 0 {
		return os.NewSyscallError("setsockopt", errno)
	}
	return nil
}

// maxReads bounds how often a table is read again because another process wrote meanwhile.
const maxReads = 100

// readBlob reads the table. The kernel returns offsets and entries separately, so the offsets are
// read again for comparison.
func (c *conn) readBlob() (*blob, error) {
	where, size, err := c.info()
	for range maxReads {
		if err != nil {
			return nil, err
		}
		buf := c.named(getSize + size)
		native.PutUint32(buf[nameSize:], uint32(size))
		got := c.get(optionEntries, buf)
		if got != nil && !errors.Is(got, unix.EAGAIN) { // which says that the size is another now
			return nil, got
		}
		before, sizeBefore := where, size
		where, size, err = c.info()
		if err == nil && got == nil && before == where && sizeBefore == size {
			return &blob{where, buf[getSize:]}, nil
		}
	}
	return nil, fmt.Errorf(
		"it changed during each of %d readings: another process writes without pause", maxReads)
}

// info reads the table's properties and the size of its entries.
func (c *conn) info() (offsets, int, error) {
	var o offsets
	buf := c.named(infoSize)
	if err := c.get(optionInfo, buf); err != nil {
		return o, 0, err
	}
	word := func(n int) uint32 { return native.Uint32(buf[nameSize+4*n:]) }
	o.validHooks, o.count = word(0), word(1+2*len(hooks))
	for h := range hooks {
		if o.validHooks&(1<<h) != 0 { // else the kernel has any number there
			o.hookEntry[h], o.underflow[h] = word(1+h), word(1+len(hooks)+h)
		}
	}
	return o, int(word(2 + 2*len(hooks))), nil
}
