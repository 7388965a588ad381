package established

import (
	"net/netip"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
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
			e := ender{withoutSocket: []rules.Protocol{rules.TCP, rules.UDP}}
			err := netnstest.New(t).Do(func() error {
				err := os.WriteFile("/proc/sys/net/netfilter/nf_conntrack_tcp_loose", []byte(tc.loose), 0)
				e.addUndestroyed(tc.deleted)
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
	e := evaluator{deadline: past} // without a handle
	if name := e.device(netip.MustParseAddr("192.0.2.1")); name != "" {
		t.Errorf("device %q, want none", name)
	}
	g := groups{procDir: "/proc", deadline: past}
	g.scan(false)
	if len(g.gids) > 0 {
		t.Errorf("the scan found %d sockets, want none", len(g.gids))
	}
	g.deadline = time.Now().Add(time.Hour)
	if g.scan(false); len(g.gids) == 0 {
		t.Error("a scan before the deadline found no sockets")
	}
}
