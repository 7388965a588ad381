package doctor

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/rules"
)

// legacyList returns the file with the names of the tables that exist. To ask for one that does not would create it, in the kernel's
// xt_find_table_lock.
func legacyList(f rules.Family) string {
	if f == rules.IPv6 {
		return "/proc/thread-self/net/ip6_tables_names"
	}
	return "/proc/thread-self/net/ip_tables_names"
}

// legacyTables reads the tables of iptables-legacy and ip6tables-legacy that exist in the thread's namespace.
func legacyTables() ([]LegacyTable, error) {
	var found []LegacyTable
	var errs []error
	for _, f := range []rules.Family{rules.IPv4, rules.IPv6} {
		names, err := os.ReadFile(legacyList(f))
		if errors.Is(err, fs.ErrNotExist) {
			continue // nobody has used the tables on this host
		}
		errs = append(errs, err)
		for name := range strings.FieldsSeq(string(names)) {
			t := LegacyTable{Family: f, Name: name}
			t.Err = t.read()
			found = append(found, t)
		}
	}
	return found, errors.Join(errs...)
}

// Of linux/netfilter_ipv4/ip_tables.h and linux/netfilter_ipv6/ip6_tables.h, which have the same numbers.
const (
	getInfo    = 64 // IPT_SO_GET_INFO
	getEntries = 65 // IPT_SO_GET_ENTRIES

	sizeofName = 32 // XT_TABLE_MAXNAMELEN
	sizeofInfo = sizeofName + 4 + 4*5 + 4*5 + 4 + 4
	// Of struct ipt_get_entries, to the entries.
	sizeofGet = sizeofName + 8
)

// read asks the kernel for the content.
func (t *LegacyTable) read() error {
	domain, level := unix.AF_INET, unix.SOL_IP
	if t.Family == rules.IPv6 {
		domain, level = unix.AF_INET6, unix.SOL_IPV6
	}
	fd, err := unix.Socket(domain, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_RAW)
	if err != nil {
		return os.NewSyscallError("socket", err)
	}
	defer func() { _ = unix.Close(fd) }()
	info := make([]byte, sizeofInfo)
	copy(info[:sizeofName-1], t.Name)
	if err := getsockopt(fd, level, getInfo, info); err != nil {
		return fmt.Errorf("ask for table %s: %w", t.Name, err)
	}
	size := binary.NativeEndian.Uint32(info[sizeofInfo-4:])
	entries := make([]byte, sizeofGet+int(size))
	copy(entries[:sizeofName-1], t.Name)
	binary.NativeEndian.PutUint32(entries[sizeofName:], size)
	// EAGAIN: another program has changed the table since.
	if err := getsockopt(fd, level, getEntries, entries); err != nil {
		return fmt.Errorf("read table %s: %w", t.Name, err)
	}
	hooks := binary.NativeEndian.Uint32(info[sizeofName:])
	return t.parse(entries[sizeofGet:], hooks)
}

func getsockopt(fd, level, name int, value []byte) error {
	size := uint32(len(value))
	_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(fd), uintptr(level), uintptr(name),
		uintptr(unsafe.Pointer(&value[0])), uintptr(unsafe.Pointer(&size)), 0)
	if errno != 0 {
		return os.NewSyscallError("getsockopt", errno)
	}
	return nil
}

// errMalformed reports that a table does not look as it should.
var errMalformed = errors.New("the kernel's table is not well-formed")

// parse reads the entries: of each chain the rules, and of each that is not built in, before them, one that names it. Built-in
// chains end in their policy, others in a return.
func (t *LegacyTable) parse(entries []byte, hooks uint32) error {
	// Of struct ipt_entry and ip6t_entry: the size up to target_offset, and up to the matches.
	offset, head := 88, 112
	if t.Family == rules.IPv6 {
		offset, head = 140, 168
	}
	builtIn := 0
	for ; hooks != 0; hooks &= hooks - 1 {
		builtIn++
	}
	for len(entries) > 0 {
		if len(entries) < head {
			return errMalformed
		}
		target := int(binary.NativeEndian.Uint16(entries[offset:]))
		next := int(binary.NativeEndian.Uint16(entries[offset+2:]))
		if target < head || next < target+sizeofTarget || next > len(entries) {
			return errMalformed
		}
		t.entry(entries[target:next])
		entries = entries[next:]
	}
	// The last entry names no chain, but ends the table.
	if len(t.Chains) == 0 {
		return errMalformed
	}
	t.Chains = t.Chains[:len(t.Chains)-1]
	t.Rules -= builtIn + len(t.Chains)
	return nil
}

// sizeofTarget is that of struct xt_entry_target, of which the name begins at 2 and is 29 bytes long.
const sizeofTarget = 32

// entry reads the target of an entry.
func (t *LegacyTable) entry(target []byte) {
	if text(target[2:31]) != "ERROR" {
		t.Rules++
		return
	}
	t.Chains = append(t.Chains, text(target[sizeofTarget:]))
}

// text reads a name that ends in a zero.
func text(b []byte) string { return unix.ByteSliceToString(b) }
