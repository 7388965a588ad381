package nft

import (
	"errors"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
	"github.com/sluice-mesh/sluice/rules"
)

// TestAnswersOfOtherProcessesAreRefused covers a process of the pod that sends a forged answer.
func TestAnswersOfOtherProcessesAreRefused(t *testing.T) {
	err := netnstest.New(t).Do(func() error {
		c, err := dial()
		if err != nil {
			return err
		}
		defer c.close()
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
		if err := unix.Sendto(other.fd, m.buf, 0, own); !errors.Is(err, unix.ECONNREFUSED) {
			t.Errorf("send of the forged answer: error %v, want %v", err, unix.ECONNREFUSED)
		}
		_, err = c.findSluiceTable()
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}
