package netns_test

import (
	"errors"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
)

// TestNetlinkRefusesMessagesOfProcesses covers a process of the pod that sends messages to the
// agent's sockets. The port id of the first socket of a protocol in a namespace is the process id.
func TestNetlinkRefusesMessagesOfProcesses(t *testing.T) {
	protocols := []int{unix.NETLINK_ROUTE, unix.NETLINK_NETFILTER, unix.NETLINK_INET_DIAG}
	ns := netnstest.New(t)
	h, err := ns.Netlink(protocols...)
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	for _, protocol := range protocols {
		err := ns.Do(func() error {
			fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, protocol)
			if err != nil {
				return err
			}
			defer func() { _ = unix.Close(fd) }()
			if err := unix.Bind(fd, &unix.SockaddrNetlink{
				Family: unix.AF_NETLINK, Pid: uint32(os.Getpid()),
			}); !errors.Is(err, unix.EADDRINUSE) {
				t.Errorf("protocol %d: bind: error %v, want %v", protocol, err, unix.EADDRINUSE)
			}
			return unix.Sendto(fd, make([]byte, unix.NLMSG_HDRLEN), 0, &unix.SockaddrNetlink{
				Family: unix.AF_NETLINK, Pid: uint32(os.Getpid()),
			})
		})
		if !errors.Is(err, unix.ECONNREFUSED) {
			t.Errorf("protocol %d: send: error %v, want %v", protocol, err, unix.ECONNREFUSED)
		}
	}
	if _, err := h.LinkList(); err != nil {
		t.Errorf("the kernel's answer: %v", err)
	}
}
