package compat_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/sluice-mesh/sluice/compat"
	"github.com/sluice-mesh/sluice/compat/xtables"
	"github.com/sluice-mesh/sluice/nft"
	"github.com/sluice-mesh/sluice/nft/istio/istiotest"
	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
	"github.com/sluice-mesh/sluice/rules"
)

// TestTooLargeLegacyTable checks that a table of iptables-legacy that exceeds the limit makes its
// content unknown, and does not prevent the rules in nf_tables.
func TestTooLargeLegacyTable(t *testing.T) {
	ns := netnstest.New(t)
	istiotest.RestoreLargeTable(t, ns, "nat")
	b, rs := chosen(t, compat.BackendNFT), compiled(t, dual)
	result, err := b.Apply(ns, rs, compat.Snapshot{})
	if !compat.IsLegacyTooLarge(result.Backend, err) || result.Outcome != nft.Created ||
		!strings.Contains(err.Error(), "delete the rules that are not needed") {
		t.Errorf("Apply: outcome %q, error %v; want created, and that the table is too large", result.Outcome, err)
	}
	found, err := b.Check(ns, rs, result.Snapshot())
	if !compat.IsLegacyTooLarge(found.Backend, err) || len(found.Differences) > 0 {
		t.Errorf("Check: differences %v, error %v; want only that the table is too large", found.Differences, err)
	}
	for _, name := range []compat.BackendName{compat.BackendNFT, compat.BackendAuto} {
		if _, err := b.Apply(ns, rs, compat.Snapshot{}); !compat.IsLegacyTooLarge(compat.BackendNFT, err) {
			t.Errorf("Apply: error %v, want only that the table is too large", err)
		}
		removed, err := chosen(t, name).Remove(ns)
		if !removed || !errors.Is(err, xtables.ErrTooLarge) {
			t.Errorf("Remove by %s: removed %t, error %v; want the rules removed, and the error", name, removed, err)
		}
		if tables, err := nft.Read(ns); err != nil || len(tables.Tables) > 0 {
			t.Errorf("after Remove by %s: %d tables, error %v; want none", name, len(tables.Tables), err)
		}
	}
	result, err = chosen(t, compat.BackendLegacy).Apply(ns, rs, compat.Snapshot{})
	if !errors.Is(err, xtables.ErrTooLarge) || compat.IsLegacyTooLarge(result.Backend, err) {
		t.Errorf("Apply by legacy: backend %q, error %v; want that it cannot write", result.Backend, err)
	}
}

// TestLimitOfAllLegacyTables checks that the limit applies to all tables of a namespace together.
func TestLimitOfAllLegacyTables(t *testing.T) {
	ns := netnstest.New(t)
	readers := map[string]func() error{
		"ReadTables":   func() error { _, err := compat.ReadTables(ns); return err },
		"ReadLive":     func() error { _, err := compat.ReadLive(ns, compat.OriginAll); return err },
		"DigestTables": func() error { _, err := xtables.DigestTables(ns); return err },
		"Check": func() error {
			_, err := chosen(t, compat.BackendLegacy).Check(ns, compiled(t), compat.Snapshot{})
			return err
		},
	}
	for i, table := range []string{"mangle", "raw"} {
		istiotest.Restore(t, ns, istiotest.Legacy, rules.IPv4,
			"*"+table+"\n"+strings.Repeat("-A OUTPUT\n", 60_000)+"COMMIT\n")
		for name, read := range readers {
			if err := read(); errors.Is(err, xtables.ErrTooLarge) != (i > 0) || i == 0 && err != nil {
				t.Errorf("%s with %d tables of 60,000 rules: error %v, want %v only with 2 tables", name,
					i+1, err, xtables.ErrTooLarge)
			}
		}
	}
}

// TestLegacyTooLargeIsTheOnlyError checks that another error is not ignored because the tables of
// iptables-legacy are too large too: the rules of Istio in nf_tables may then remain.
func TestLegacyTooLargeIsTheOnlyError(t *testing.T) {
	tooLarge, other := fmt.Errorf("nat: %w", xtables.ErrTooLarge), errors.New("device or resource busy")
	for _, row := range []struct {
		err  error
		want bool
	}{
		{nil, false},
		{other, false},
		{tooLarge, true},
		{errors.Join(nil, tooLarge, tooLarge), true},
		{errors.Join(other, tooLarge), false},
		{fmt.Errorf("remove: %w", errors.Join(tooLarge, other)), false},
	} {
		if got := compat.IsLegacyTooLarge(compat.BackendNFT, row.err); got != row.want {
			t.Errorf("%v: %t, want %t", row.err, got, row.want)
		}
	}
}
