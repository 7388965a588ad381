package established

import (
	"errors"
	"maps"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
	"github.com/sluice-mesh/sluice/nft/sockdiag"
	"github.com/sluice-mesh/sluice/rules"
)

// TestConnectionsWithoutADestroyedSocketInTheReport covers a kernel without
// CONFIG_INET_DIAG_DESTROY, on which only conntrack entries are deleted.
func TestConnectionsWithoutADestroyedSocketInTheReport(t *testing.T) {
	for _, tc := range []struct {
		name    string
		loose   string
		deleted bool
		want    Report
	}{
		{"the entries were deleted", "1", true, Report{Ended: 2, Broken: 2}},
		{"the entries were not deleted", "1", false, Report{Failed: 2}},
		{"TCP packets without an entry are invalid", "0", true, Report{Ended: 1, Broken: 1, Failed: 1}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			e := ender{}
			err := netnstest.New(t).Do(func() error {
				err := os.WriteFile("/proc/sys/net/netfilter/nf_conntrack_tcp_loose", []byte(tc.loose), 0)
				e.addUndestroyed(rules.TCP, tc.deleted)
				e.addUndestroyed(rules.UDP, tc.deleted)
				return err
			})
			if err != nil || e.report != tc.want {
				t.Errorf("report %+v, error %v; want %+v", e.report, err, tc.want)
			}
		})
	}
}

// TestNothingIsLookedUpAfterTheDeadline verifies that the limit of time includes lookups.
func TestNothingIsLookedUpAfterTheDeadline(t *testing.T) {
	socket, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Close(socket) }()
	past := time.Now().Add(-time.Second)
	table := newSocketTable()
	table.add(sockdiag.Socket{})
	untracked := ender{evaluator: evaluator{socketTable: table, deadline: past}}
	if err := untracked.endUntracked(); !errors.Is(err, errTime) || untracked.examined > 0 {
		t.Errorf("error %v after %d connections, want %v before the first one", err,
			untracked.examined, errTime)
	}
	e := evaluator{deadline: past} // without a handle
	if name := e.device(netip.MustParseAddr("192.0.2.1")); name != "" {
		t.Errorf("device %q, want none", name)
	}
	var st unix.Stat_t
	if err := unix.Fstat(socket, &st); err != nil {
		t.Fatal(err)
	}
	g := groups{procDir: "/proc", deadline: past, wanted: map[uint32]bool{uint32(st.Ino): true}}
	g.scan(false)
	if len(g.gids) > 0 {
		t.Errorf("the scan found %d sockets, want none", len(g.gids))
	}
	if err := netnstest.New(t).Do(func() error {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return err
		}
		defer func() { _ = l.Close() }()
		return newSocketTable().readSockets(past)
	}); !errors.Is(err, errTime) {
		t.Errorf("error %v of a list of sockets, want %v", err, errTime)
	}
	g.deadline = time.Now().Add(time.Hour)
	if g.scan(false); len(g.gids) == 0 {
		t.Error("a scan before the deadline found no sockets")
	}
}

// TestUDPConnectionsHaveNoSockets covers a TCP socket with the addresses of a UDP connection.
func TestUDPConnectionsHaveNoSockets(t *testing.T) {
	s := sockdiag.Socket{
		Local: netip.MustParseAddrPort("10.0.0.1:1"), Peer: netip.MustParseAddrPort("10.0.0.2:53"),
	}
	table := newSocketTable()
	table.add(s)
	at := tuple{rules.TCP, pair{s.Local, s.Peer}}
	if table.socket(at) == nil {
		t.Errorf("%s: no socket is found, want the TCP socket", at)
	}
	if at.protocol = rules.UDP; table.socket(at) != nil {
		t.Errorf("%s: the TCP socket is found, want none", at)
	}
}

// TestGroupsAreFoundAmongManyFiles covers a process with more sockets than are listed at a time. It
// checks that the groups of other sockets are not kept.
func TestGroupsAreFoundAmongManyFiles(t *testing.T) {
	dir := t.TempDir()
	g := groups{
		deadline: time.Now().Add(time.Minute), wanted: map[uint32]bool{}, gids: map[uint32]uint32{},
	}
	want := map[uint32]uint32{}
	if err := os.Mkdir(filepath.Join(dir, "fd"), 0o700); err != nil {
		t.Fatal(err)
	}
	for i := range 3000 {
		path := filepath.Join(dir, "fd", strconv.Itoa(i))
		if err := unix.Mknod(path, unix.S_IFSOCK|0o600, 0); err != nil {
			t.Fatal(err)
		}
		var st unix.Stat_t
		if err := unix.Stat(path, &st); err != nil {
			t.Fatal(err)
		}
		if i%2 == 0 {
			g.wanted[uint32(st.Ino)], want[uint32(st.Ino)] = true, st.Gid
		}
	}
	if g.recordSockets(dir); !maps.Equal(g.gids, want) {
		t.Errorf("the groups of %d sockets are kept, want only the groups of the %d wanted sockets", len(g.gids),
			len(want))
	}
}

// TestCachesAreBounded checks that a cache contains the last result and at most maxCached results.
func TestCachesAreBounded(t *testing.T) {
	results := map[int]int{}
	for i := range 3 * maxCached {
		cache(results, i, -i)
		if got, ok := results[i]; got != -i || !ok || len(results) > maxCached {
			t.Fatalf("the result for %d is %d, cached: %t, among %d results; want %d among at most %d", i, got,
				ok, len(results), -i, maxCached)
		}
	}
}
