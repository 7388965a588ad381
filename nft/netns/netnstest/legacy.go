package netnstest

import (
	"encoding/binary"
	"runtime"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/nft/netns"
)

// WriteUnreadableTable creates the IPv4 table raw of iptables-legacy, which must not exist, with
// entries that the kernel accepts but iptables cannot write: one entry belongs to no chain.
func WriteUnreadableTable(t testing.TB, ns *netns.NS) {
	t.Helper()
	const (
		getInfo, setReplace = 64, 64 // IPT_SO_GET_INFO, IPT_SO_SET_REPLACE
		headerSize          = 112    // struct ipt_entry
		replaceSize         = 96     // struct ipt_replace
		hooks               = 1<<0 | 1<<3
		oldCount            = 3 // two policies and the end
	)
	order := binary.NativeEndian
	var entries []byte
	entry := func(targetName string, targetSize int, verdict int32) uint32 {
		at := len(entries)
		e := make([]byte, headerSize+targetSize)
		order.PutUint16(e[88:], headerSize)
		order.PutUint16(e[90:], uint16(len(e)))
		order.PutUint16(e[headerSize:], uint16(targetSize))
		copy(e[headerSize+2:], targetName)
		if targetName == "" {
			order.PutUint32(e[headerSize+32:], uint32(verdict))
		} else {
			copy(e[headerSize+32:], targetName)
		}
		entries = append(entries, e...)
		return uint32(at)
	}
	const accept = -2
	prerouting, output := entry("", 40, accept), entry("", 40, accept)
	entry("", 40, accept) // belongs to no chain
	entry("ERROR", 64, 0)
	counters := make([]byte, 16*oldCount)
	var pinner runtime.Pinner // the kernel writes to this address
	pinner.Pin(&counters[0])
	defer pinner.Unpin()
	b := make([]byte, replaceSize, replaceSize+len(entries))
	copy(b, "raw")
	order.PutUint32(b[32:], hooks)
	order.PutUint32(b[36:], 4)
	order.PutUint32(b[40:], uint32(len(entries)))
	order.PutUint32(b[44:], prerouting)
	order.PutUint32(b[44+4*3:], output)
	order.PutUint32(b[64:], prerouting)
	order.PutUint32(b[64+4*3:], output)
	order.PutUint32(b[84:], oldCount)
	order.PutUint64(b[88:], uint64(uintptr(unsafe.Pointer(&counters[0]))))
	b = append(b, entries...)
	err := ns.Do(func() error {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer func() { _ = unix.Close(fd) }()
		// The first request creates the table.
		info := make([]byte, 84) // struct ipt_getinfo
		copy(info, "raw")
		size := uint32(len(info))
		if _, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(fd), unix.SOL_IP, getInfo,
			uintptr(unsafe.Pointer(&info[0])), uintptr(unsafe.Pointer(&size)), 0); errno != 0 {
			return errno
		}
		if _, _, errno := unix.Syscall6(unix.SYS_SETSOCKOPT, uintptr(fd), unix.SOL_IP, setReplace,
			uintptr(unsafe.Pointer(&b[0])), uintptr(len(b)), 0); errno != 0 {
			return errno
		}
		return nil
	})
	if err != nil {
		t.Fatal("write an unreadable table of iptables-legacy: ", err)
	}
}
