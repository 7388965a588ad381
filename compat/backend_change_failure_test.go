package compat_test

import (
	"bufio"
	"errors"
	"fmt"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/compat"
	"github.com/sluice-mesh/sluice/nft"
	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
	"github.com/sluice-mesh/sluice/nft/route"
	"github.com/sluice-mesh/sluice/rules"
)

// If the rules are in place, Apply returns an outcome with the error and tries no other backend.
// Here nftables has the rules, and the kernel refuses to remove the old ones from iptables-legacy.
func TestApplyReportsOldRulesThatCannotBeRemoved(t *testing.T) {
	t.Parallel()
	ns := netnstest.New(t)
	applyAndCheck(t, chosen(t, compat.BackendLegacy), ns, compiled(t), nft.Created)
	p := start(t, ns, "apply without writing legacy")
	for range 2 { // by nft, then by auto
		got := p.line(t)
		if !strings.HasPrefix(got, "replaced by nft, moved true: ") ||
			!strings.Contains(got,
				": the rules are in nftables, but not all of Sluice's rules in iptables-legacy were removed: ") ||
			!strings.HasSuffix(got, "operation not supported") {
			t.Errorf("got %s\nwant replaced by nft, and the error of the removal", got)
		}
	}
	if found, err := nft.Read(ns); err != nil || len(found.Tables) == 0 {
		t.Errorf("nftables has tables %v, error %v; want Sluice's table", found.Tables, err)
	}
}

// A backend change begins with a gate (a chain that drops TCP packets) in the old backend. If the
// gate cannot be written, nothing changes.
func TestBackendChangeWithoutItsGateChangesNothing(t *testing.T) {
	t.Parallel()
	ns := netnstest.New(t)
	old := compiled(t, tproxy)
	applyAndCheck(t, chosen(t, compat.BackendLegacy), ns, old, nft.Created)
	p := start(t, ns, "apply without writing legacy")
	for range 2 { // by nft, then by auto
		if got := p.line(t); !strings.HasPrefix(got, " by , moved false: ") ||
			!strings.HasSuffix(got, "operation not supported") {
			t.Errorf("got %s\nwant no outcome, and the error of the gate", got)
		}
	}
	if found, err := nft.Read(ns); err != nil || len(found.Tables) > 0 {
		t.Errorf("nftables has tables %v, error %v; want none", found.Tables, err)
	}
	wantInSync(t, chosen(t, compat.BackendLegacy), ns, old)
}

// applyWithoutWritingLegacy is the role of a process that cannot replace iptables-legacy tables.
func applyWithoutWritingLegacy(ns *netns.NS, _ *bufio.Reader) error {
	refuse(unix.SYS_SETSOCKOPT, -1, 2, 64, unix.EOPNOTSUPP) // IPT_SO_SET_REPLACE
	for _, backendName := range []compat.BackendName{compat.BackendNFT, compat.BackendAuto} {
		b, err := compat.Choose(backendName)
		if err != nil {
			return err
		}
		r, err := b.Apply(ns, rules.MustCompile(sidecar(exclusions)), compat.Snapshot{})
		fmt.Printf("%s by %s, moved %v: %v\n", r.Outcome, r.Backend, r.Moved, err)
	}
	return nil
}

// If nft.Apply fails after its transaction, the backend change completes and returns the error. If
// nft.Apply fails and the rules are not in place, the change is rolled back.
func TestBackendChangeIfNFTApplyFails(t *testing.T) {
	failed := errors.New("an error of nft.Apply")
	for _, tc := range []struct {
		name    string
		inPlace bool // whether the rules are in nftables when nft.Apply fails
		outcome nft.Outcome
		want    compat.Result
	}{
		{
			"an error after the transaction", true, nft.Created,
			compat.Result{
				Result: nft.Result{Outcome: nft.Replaced}, Backend: compat.BackendNFT, Moved: true,
			},
		},
		{"an error before the transaction", false, "", compat.Result{}},
		{
			"an unconfirmed transaction that did not take place", false, nft.Created,
			compat.Result{},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			ns := netnstest.New(t)
			old, rs := compiled(t, tproxy), compiled(t, tproxy, exclusions)
			applyAndCheck(t, chosen(t, compat.BackendLegacy), ns, old, nft.Created)
			got, err := compat.ApplyNFT(ns, rs, func(*netns.NS, rules.Ruleset) (nft.Result, error) {
				if tc.inPlace {
					if _, err := nft.Apply(nil, rs); err != nil {
						t.Error(err)
					}
				}
				return nft.Result{Outcome: tc.outcome}, failed
			})
			got.Routes = 0
			if !errors.Is(err, failed) || got != tc.want {
				t.Errorf("result %+v, error %v; want %+v and the error of nft.Apply", got, err, tc.want)
			}
			if tc.inPlace {
				wantInSync(t, chosen(t, compat.BackendNFT), ns, rs)
			} else {
				wantInSync(t, chosen(t, compat.BackendLegacy), ns, old)
			}
		})
	}
}

// If another program removes the old rules during the change, the outcome is still "replaced",
// because the pod had rules before.
func TestBackendChangeWhileAnotherProgramRemovesTheOldRules(t *testing.T) {
	ns := netnstest.New(t)
	applyAndCheck(t, chosen(t, compat.BackendLegacy), ns, compiled(t), nft.Created)
	rs := compiled(t, exclusions)
	got, err := compat.ApplyNFT(ns, rs, func(_ *netns.NS, rs rules.Ruleset) (nft.Result, error) {
		if _, err := chosen(t, compat.BackendLegacy).Remove(nil); err != nil {
			t.Error(err)
		}
		return nft.Apply(nil, rs)
	})
	if err != nil || got.Outcome != nft.Replaced || got.Moved {
		t.Errorf("result %+v, error %v; want outcome replaced, Moved false and no error", got, err)
	}
	wantInSync(t, chosen(t, compat.BackendNFT), ns, rs)
}

// A change to iptables-legacy is rolled back without an outcome if the nftables rules cannot be
// deleted. Here a process owns Sluice's table, which no other process can delete.
func TestBackendChangeFromATableThatCannotBeDeleted(t *testing.T) {
	ns := netnstest.New(t)
	netnstest.OwnTable(t, ns,
		"table inet sluice { flags owner; chain nat-output { type nat hook output priority -110; oifname lo return; }; }")
	before, err := nft.Read(ns)
	if err != nil || len(before.Tables) != 1 {
		t.Fatalf("nftables has %+v, error %v; want one table", before, err)
	}
	got, err := chosen(t, compat.BackendLegacy).Apply(ns, compiled(t, tproxy), compat.Snapshot{})
	if err == nil || !strings.Contains(err.Error(), "remove Sluice's rules from nftables: ") ||
		got != (compat.Result{}) {
		t.Errorf("result %+v, error %v; want the zero Result and the error of the deletion", got, err)
	}
	after, err := nft.Read(ns)
	if err != nil || !rules.Equal(before, after) {
		t.Errorf("nftables has %+v, error %v; want %+v", after, err, before)
	}
	if tables, err := compat.LegacyTables(ns); err != nil || len(tables) > 0 {
		t.Errorf("iptables-legacy has tables %v, error %v; want none", tables, err)
	}
}

// If a rollback fails, the outcome shows whether rules were created or replaced.
func TestOutcomeOfAFailedRollback(t *testing.T) {
	for _, tc := range []struct {
		name   string
		before []rules.Ruleset
		want   nft.Outcome
	}{
		{"first installation", nil, nft.Created},
		{"change", []rules.Ruleset{compiled(t, dual)}, nft.Replaced},
	} {
		t.Run(tc.name, func(t *testing.T) {
			ns := netnstest.New(t)
			for _, rs := range tc.before {
				applyAndCheck(t, chosen(t, compat.BackendLegacy), ns, rs, nft.Created)
			}
			got, err := compat.ApplyLegacyWithFailingRollback(ns, withRejectedLastTable(t, tproxy))
			if !errors.Is(err, unix.EINVAL) || !strings.Contains(err.Error(), "roll back: ") {
				t.Errorf("error %v, want an error of the rollback", err)
			}
			if got.Outcome != tc.want || got.Backend != compat.BackendLegacy {
				t.Errorf("result %+v, want outcome %s and backend %s", got, tc.want, compat.BackendLegacy)
			}
			// Rules of the new ruleset may remain, and need its routes.
			if routing, err := route.Read(ns); err != nil || len(routing.Policies) == 0 {
				t.Errorf("routing %+v, error %v; want policy routes", routing, err)
			}
		})
	}
}
