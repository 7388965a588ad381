package nft

import (
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
	"github.com/sluice-mesh/sluice/rules"
)

// TestAnswersOfOtherProcessesAreIgnored covers a process of the pod that sends a forged answer
// before the kernel sends its answer.
func TestAnswersOfOtherProcessesAreIgnored(t *testing.T) {
	err := netnstest.New(t).Do(func() error {
		c, err := dial()
		if err != nil {
			return err
		}
		defer c.close()
		if err := unix.Bind(c.fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
			return err
		}
		own, err := unix.Getsockname(c.fd)
		if err != nil {
			return err
		}
		other, err := dial()
		if err != nil {
			return err
		}
		defer other.close()
		var m messages
		m.begin(messageType(unix.NFT_MSG_NEWTABLE), 0, firstRequest, unix.NFPROTO_INET, 0)
		m.addText(unix.NFTA_TABLE_NAME, rules.TableName)
		m.end()
		if err := unix.Sendto(other.fd, m.buf, 0, own); err != nil {
			return err
		}
		found, err := c.findSluiceTable()
		if found != nil {
			t.Error("the forged answer was accepted")
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}
