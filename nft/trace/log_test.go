package trace_test

import (
	"errors"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
	"github.com/sluice-mesh/sluice/nft/trace"
)

func TestOneLogAtATime(t *testing.T) {
	ns := netnstest.New(t)
	for range 2 {
		l, err := trace.OpenLog(ns, 0)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := trace.OpenLog(ns, 0); !errors.Is(err, trace.ErrLogBusy) {
			t.Errorf("a second log: error %v, want %v", err, trace.ErrLogBusy)
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestCloseReleasesTheGroup covers a copy of the log's socket: a process that is being started has
// such a copy until it executes its program.
func TestCloseReleasesTheGroup(t *testing.T) {
	ns := netnstest.New(t)
	l, err := trace.OpenLog(ns, 0)
	if err != nil {
		t.Fatal(err)
	}
	fd, err := l.DupSocket()
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	next, err := trace.OpenLog(ns, 0)
	if err != nil {
		t.Fatalf("open the next log: %v", err)
	}
	if err := next.Close(); err != nil {
		t.Error(err)
	}
}

func TestOpenLogNamesTheMissingCapability(t *testing.T) {
	err := netnstest.New(t).Do(func() error {
		header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
		var none [2]unix.CapUserData
		if err := unix.Capset(&header, &none[0]); err != nil {
			return err
		}
		l, err := trace.OpenLog(nil, 0)
		if err == nil {
			_ = l.Close()
		}
		return err
	})
	if !errors.Is(err, unix.EPERM) || !strings.Contains(err.Error(), "CAP_NET_ADMIN") {
		t.Errorf("error %v, want a permission error that names CAP_NET_ADMIN", err)
	}
}
