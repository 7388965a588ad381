package owner_test

import (
	"bytes"
	"errors"
	"net"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
	"github.com/sluice-mesh/sluice/nft/owner"
)

func TestAsSetsTheOwnerOfSockets(t *testing.T) {
	netnstest.RequireIDs(t, 1337, 1338)
	for _, n := range []*netns.NS{nil, netnstest.New(t)} {
		err := n.Do(func() error {
			want := n.ID()
			return owner.As(1337, 1338, func() error {
				if got := (*netns.NS)(nil).ID(); got != want {
					t.Errorf("fn runs in %v, want the caller's namespace %v", got, want)
				}
				fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
				if err != nil {
					return err
				}
				defer unix.Close(fd)
				var st unix.Stat_t
				if err := unix.Fstat(fd, &st); err != nil {
					return err
				}
				if st.Uid != 1337 || st.Gid != 1338 {
					t.Errorf("socket of uid %d, gid %d, want 1337 and 1338", st.Uid, st.Gid)
				}
				// A privileged port: the thread keeps its capabilities.
				return unix.Bind(fd, &unix.SockaddrInet4{Port: 1023})
			})
		})
		if err != nil {
			t.Error(err)
		}
	}
}

func TestAsDoesNotChangeOtherThreads(t *testing.T) {
	netnstest.RequireIDs(t, 1337, 1337)
	for range 50 {
		if err := owner.As(1337, 1337, func() error { return nil }); err != nil {
			t.Fatal(err)
		}
		err := netnstest.New(t).Do(func() error {
			if uid, _ := unix.SetfsuidRetUid(-1); uid != 0 {
				t.Errorf("another goroutine runs with uid %d, want 0", uid)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

func TestAsRejectsAnInvalidID(t *testing.T) {
	netnstest.RequireRoot(t)
	if err := owner.As(0, 1<<32-1, func() error { return nil }); !errors.Is(err, unix.EPERM) {
		t.Errorf("error %v, want EPERM", err)
	}
}

func TestRulesMatchTheOwner(t *testing.T) {
	nft := netnstest.RequireBinary(t, "nft")
	for _, tc := range []struct {
		name     string
		ns       *netns.NS
		uid, gid int
		refused  bool
	}{
		{"the proxy's uid", netnstest.New(t), 1337, 0, true},
		{"the proxy's gid", netnstest.New(t), 0, 1337, true},
		{"neither the proxy's uid nor its gid", netnstest.New(t), 1336, 1336, false},
		{
			"the proxy's uid in a user namespace", netnstest.NewInUserNS(t),
			netnstest.UserNSBase + 1337, 0, true,
		},
		{"uid 1337 outside the user namespace", netnstest.NewInUserNS(t), 1337, 0, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			cmd := exec.Command(nft, "-f", "-")
			cmd.Stdin = strings.NewReader(`
				add table inet t
				add chain inet t out { type filter hook output priority 0; }
				add rule inet t out tcp dport 80 meta skuid 1337 reject with tcp reset
				add rule inet t out tcp dport 80 meta skgid 1337 reject with tcp reset
			`)
			var out bytes.Buffer
			cmd.Stdout, cmd.Stderr = &out, &out
			if err := tc.ns.Do(cmd.Run); err != nil {
				t.Fatalf("nft: %v: %s", err, out.String())
			}
			err := tc.ns.Do(func() error {
				l, err := net.Listen("tcp", "127.0.0.1:80")
				if err != nil {
					return err
				}
				defer l.Close()
				return owner.As(tc.uid, tc.gid, func() error {
					c, err := net.Dial("tcp", "127.0.0.1:80")
					if err == nil {
						err = c.Close()
					}
					return err
				})
			})
			if refused := errors.Is(err, syscall.ECONNREFUSED); refused != tc.refused ||
				err != nil && !refused {
				t.Errorf("dial: %v, want refused: %t", err, tc.refused)
			}
		})
	}
}

// TestAsComparesTheIDsOfTheThread checks that As compares the requested ids with the ids of the
// thread, not of the process.
func TestAsComparesTheIDsOfTheThread(t *testing.T) {
	netnstest.RequireIDs(t, 1337, 1338)
	err := owner.As(1337, 1338, func() error {
		outer := unix.Gettid()
		same := owner.As(1337, 1338, func() error {
			if unix.Gettid() != outer {
				t.Error("As uses another thread for the same ids, want the same thread")
			}
			return nil
		})
		back := owner.As(0, 0, func() error {
			uid, _ := unix.SetfsuidRetUid(-1)
			gid, _ := unix.SetfsgidRetGid(-1)
			if unix.Gettid() == outer || uid != 0 || gid != 0 {
				t.Errorf("uid %d, gid %d on thread %d, want 0 and 0 on a thread other than %d", uid, gid,
					unix.Gettid(), outer)
			}
			return nil
		})
		return errors.Join(same, back)
	})
	if err != nil {
		t.Error(err)
	}
}

func TestAsKeepsTheDumpableAttribute(t *testing.T) {
	netnstest.RequireIDs(t, 1337, 1337)
	netnstest.RequireIDs(t, 1338, 1338)
	defer func() { _ = unix.Prctl(unix.PR_SET_DUMPABLE, 1, 0, 0, 0) }()
	for _, want := range []int{1, 0} {
		if err := unix.Prctl(unix.PR_SET_DUMPABLE, uintptr(want), 0, 0, 0); err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		for i := range 20 {
			wg.Go(func() {
				if err := owner.As(1337+i%2, 1337, func() error { return nil }); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		_ = owner.As(1<<32-1, 1337, func() error { return nil }) // fails after changing the gid
		if got, err := unix.PrctlRetInt(unix.PR_GET_DUMPABLE, 0, 0, 0, 0); err != nil ||
			got != want {
			t.Errorf("dumpable %d (%v), want %d", got, err, want)
		}
	}
}
