package netnstest

import (
	"fmt"
	"os/exec"
	"syscall"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/nft/netns"
)

// UserNSBase is the host uid and gid of root in the user namespace of
// [NewInUserNS]: uid 1337 inside is uid UserNSBase+1337 on the host.
const UserNSBase = 100000

// New returns a new namespace whose lo is up.
func New(t testing.TB) *netns.NS {
	t.Helper()
	RequireRoot(t)
	n, err := netns.New()
	if err != nil {
		t.Fatal(err)
	}
	return setUp(t, n)
}

// NewInUserNS returns a new namespace whose lo is up, owned by a child user namespace, as for a pod
// with hostUsers: false. Id n inside is id [UserNSBase]+n on the host, for n from 0 to 65535. The
// root user of the test has all capabilities in both namespaces.
func NewInUserNS(t testing.TB) *netns.NS {
	t.Helper()
	RequireIDs(t, UserNSBase, UserNSBase)
	// A multithreaded process cannot enter a user namespace. Therefore start a child in a new user
	// namespace, and open the child's network namespace. The child ends at the end of its input.
	cmd := exec.Command(RequireBinary(t, "cat"))
	ids := []syscall.SysProcIDMap{{ContainerID: 0, HostID: UserNSBase, Size: 65536}}
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  unix.CLONE_NEWUSER | unix.CLONE_NEWNET,
		UidMappings: ids,
		GidMappings: ids,
	}
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatalf("start %s in a user namespace with base id %d: %v", cmd.Path, UserNSBase, err)
	}
	n, err := netns.OpenPID(cmd.Process.Pid)
	_ = stdin.Close()
	if waitErr := cmd.Wait(); waitErr != nil {
		t.Errorf("child in a user namespace: %v", waitErr)
	}
	if err != nil {
		t.Fatal(err)
	}
	return setUp(t, n)
}

// setUp brings lo up in n and closes n when the test ends.
func setUp(t testing.TB, n *netns.NS) *netns.NS {
	t.Helper()
	t.Cleanup(func() {
		if err := n.Close(); err != nil {
			t.Error(err)
		}
	})
	h := newHandle(t, n)
	defer h.Close()
	if err := setLinkUp(h, "lo"); err != nil {
		t.Fatal(err)
	}
	return n
}

// newHandle opens a route netlink socket in n.
func newHandle(t testing.TB, n *netns.NS) *netlink.Handle {
	t.Helper()
	h, err := n.Netlink(unix.NETLINK_ROUTE)
	if err != nil {
		t.Fatalf("%s: %v", n, err)
	}
	return h
}

func setLinkUp(h *netlink.Handle, name string) error {
	link, err := h.LinkByName(name)
	if err != nil {
		return fmt.Errorf("link %s: %w", name, err)
	}
	if err := h.LinkSetUp(link); err != nil {
		return fmt.Errorf("link %s: set up: %w", name, err)
	}
	return nil
}
