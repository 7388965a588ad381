package compat_test

import (
	"errors"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/compat"
	"github.com/sluice-mesh/sluice/nft"
	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
)

// TestCheckAfterAnApplyThatCouldNotListTheLegacyTables checks that Check with the snapshot of an
// Apply reads iptables-legacy if Apply was not permitted to list its tables.
func TestCheckAfterAnApplyThatCouldNotListTheLegacyTables(t *testing.T) {
	ns := netnstest.New(t)
	rs := compiled(t, dual)
	applyAndCheck(t, chosen(t, compat.BackendLegacy), ns, rs, nft.Created)
	b := chosen(t, compat.BackendNFT)
	var snapshot compat.Snapshot
	err := withoutCapabilities(ns, func() error {
		// Read files like a process that is not root of the user namespace that owns the network
		// namespace, and that lacks CAP_DAC_OVERRIDE: setfsuid also drops this capability. Drop
		// root's groups too, because the group root may read the file.
		const nobody = 65534
		if _, _, errno := unix.RawSyscall(unix.SYS_SETGROUPS, 0, 0, 0); errno != 0 {
			return errno // unlike unix.Setgroups, this changes only the thread
		}
		_, gidErr := unix.SetfsgidRetGid(nobody)
		_, uidErr := unix.SetfsuidRetUid(nobody)
		if err := errors.Join(gidErr, uidErr); err != nil {
			return err
		}
		result, err := b.Apply(nil, rs, compat.Snapshot{})
		snapshot = result.Snapshot()
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	found, err := b.Check(ns, rs, snapshot)
	if err != nil || len(found.Differences) == 0 {
		t.Errorf("Check finds differences %v, error %v; want the rules in iptables-legacy",
			found.Differences, err)
	}
}

// TestLegacyNeedsNoRawSockets checks that the legacy backend does not need CAP_NET_RAW.
func TestLegacyNeedsNoRawSockets(t *testing.T) {
	ns := netnstest.New(t)
	rs := compiled(t, dual, tproxy)
	err := withoutCapabilities(ns, func() error {
		_, err := chosen(t, compat.BackendLegacy).Apply(nil, rs, compat.Snapshot{})
		return err
	}, unix.CAP_NET_RAW)
	if err != nil {
		t.Fatal(err)
	}
	wantInSync(t, chosen(t, compat.BackendLegacy), ns, rs)
}

// withoutCapabilities calls fn in the namespace, on a new thread without the capabilities.
func withoutCapabilities(ns *netns.NS, fn func() error, capabilities ...int) error {
	return netnstest.OnNewThread(func() error {
		if err := unix.Setns(ns.FD(), unix.CLONE_NEWNET); err != nil {
			return err
		}
		if err := netnstest.DropCapabilities(capabilities...); err != nil {
			return err
		}
		return fn()
	})
}
