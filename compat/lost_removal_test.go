package compat_test

import (
	"errors"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/compat"
	"github.com/sluice-mesh/sluice/nft"
	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
)

// TestBackendChangeWithoutTheAnswerToTheRemoval checks that rules remain if the kernel removes the
// rules in nf_tables, but its answer is lost.
func TestBackendChangeWithoutTheAnswerToTheRemoval(t *testing.T) {
	lost := errors.New("the answer was lost")
	for _, tc := range []struct {
		name     string
		readable bool // nf_tables can be read after the removal
	}{{"nf_tables can be read", true}, {"nf_tables cannot be read", false}} {
		t.Run(tc.name, func(t *testing.T) {
			ns := netnstest.New(t)
			rs := compiled(t, tproxy)
			applyAndCheck(t, chosen(t, compat.BackendNFT), ns, rs, nft.Created)
			desired, err := compat.Translate(rs)
			if err != nil {
				t.Fatal(err)
			}
			var got compat.Result
			err = withoutCapabilities(ns, func() (err error) {
				got, err = compat.ApplyLegacyWithRemoval(desired, func(*netns.NS) (bool, error) {
					if _, err := nft.RemoveRules(nil); err != nil {
						return false, err
					}
					if !tc.readable {
						return false, errors.Join(lost, netnstest.DropCapabilities(unix.CAP_NET_ADMIN))
					}
					return false, lost
				})
				return err
			})
			if tc.readable == (err != nil) || !tc.readable && (!errors.Is(err, lost) ||
				!strings.Contains(err.Error(), "but drop TCP packets")) {
				t.Errorf("error %v, want one only if nf_tables cannot be read", err)
			}
			if got.Outcome != nft.Replaced || got.Backend != compat.BackendLegacy || !got.Moved {
				t.Errorf("result %+v, want replaced by iptables-legacy, moved", got)
			}
			if tc.readable {
				wantInSync(t, chosen(t, compat.BackendLegacy), ns, rs)
			}
			tables, err := chosen(t, compat.BackendLegacy).Read(ns)
			if err != nil || len(tables.Tables) == 0 {
				t.Errorf("iptables-legacy has tables %v, error %v; want the rules", tables.Tables, err)
			}
			// The next Apply removes the gate.
			if _, err := chosen(t, compat.BackendLegacy).Apply(ns, rs, compat.Snapshot{}); err != nil {
				t.Fatal(err)
			}
			wantInSync(t, chosen(t, compat.BackendLegacy), ns, rs)
		})
	}
}
