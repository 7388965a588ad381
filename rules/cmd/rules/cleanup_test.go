package main

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/compat"
	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
	"github.com/sluice-mesh/sluice/rules"
)

// unreadable is a backend whose rules cannot be read.
type unreadable struct {
	compat.Backend
	err error
}

func (b unreadable) Read(*netns.NS) (rules.Ruleset, error) { return rules.Ruleset{}, b.err }

// TestCleanupPreviewReportsUnreadableBackends checks that cleanup --dry-run reports that the
// backend that is not selected cannot be read, and lists the routes only if a cleanup would remove
// them.
func TestCleanupPreviewReportsUnreadableBackends(t *testing.T) {
	ns := netnstest.New(t)
	r := rules.DefaultRedirect()
	r.Mode, r.InboundPorts.All = rules.ModeTProxy, true
	nft, legacy := compat.Backends()[0], compat.Backends()[1]
	if _, err := nft.Apply(ns, rules.MustCompile(r), compat.Snapshot{}); err != nil {
		t.Fatal(err)
	}
	broken := errors.New("input/output error")
	for _, row := range []struct {
		name                    string
		all, selected           []compat.Backend
		err                     error
		warning                 string
		listsRules, listsRoutes bool
	}{
		{
			name: "both backends can be read", all: []compat.Backend{nft, legacy},
			selected: []compat.Backend{nft}, listsRules: true, listsRoutes: true,
		},
		{
			name:     "iptables-legacy cannot be read",
			all:      []compat.Backend{nft, unreadable{legacy, broken}},
			selected: []compat.Backend{nft}, err: broken, listsRules: true,
		},
		{
			name:     "iptables-legacy may not be read",
			all:      []compat.Backend{nft, unreadable{legacy, unix.EPERM}},
			selected: []compat.Backend{nft},
			warning: "whether iptables-legacy contains rules of Sluice, which need the routes, " +
				"is unknown: operation not permitted",
			listsRules: true, listsRoutes: true,
		},
		{
			name: "nf_tables may not be read", all: []compat.Backend{unreadable{nft, unix.EPERM}, legacy},
			selected: []compat.Backend{legacy}, err: unix.EPERM,
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			warnings := new(bytes.Buffer)
			s := thisSystem()
			s.stderr = warnings
			lines, err := s.previewOwn(ns, row.all, row.selected)
			contains := func(part string) bool {
				return slices.ContainsFunc(lines, func(l string) bool { return strings.Contains(l, part) })
			}
			if !errors.Is(err, row.err) || !strings.Contains(warnings.String(), row.warning) ||
				(row.warning == "") != (warnings.Len() == 0) {
				t.Errorf("error %v, want %v; warning %q, want %q", err, row.err, warnings, row.warning)
			}
			if contains("table inet sluice") != row.listsRules || contains("route") != row.listsRoutes {
				t.Errorf("list %q, want rules: %t, routes: %t", lines, row.listsRules, row.listsRoutes)
			}
		})
	}
}
