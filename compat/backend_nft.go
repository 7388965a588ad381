package compat

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/nft"
	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/nft/route"
	"github.com/sluice-mesh/sluice/rules"
)

// nftBackend applies with package nft, and then removes Sluice's rules from iptables-legacy.
type nftBackend struct {
	// fallback makes Apply use the legacy backend if the kernel lacks a feature of nf_tables that
	// the ruleset needs.
	fallback bool
}

func (nftBackend) Name() BackendName { return BackendNFT }

// Apply implements Backend.
func (b nftBackend) Apply(
	ns *netns.NS, rs rules.Ruleset, prev Snapshot,
) (result Result, err error) {
	if ns != nil {
		err = ns.DoNamed(func() (err error) {
			result, err = b.Apply(nil, rs, prev)
			return err
		})
		return result, err
	}
	p, err := nft.Prepare(rs)
	if err != nil {
		return Result{}, err
	}
	m := migration{ruleset: rs}
	o := nft.ApplyOptions{Since: prev.lastRead, BeforeChange: m.begin}
	applied, err := p.Apply(nil, o)
	result, err = m.finish(applied, err)
	if b.fallback && result.Outcome == "" && isMissingFeature(err) {
		return applyWithLegacy(rs, err)
	}
	return result, err
}

// A migration removes Sluice's rules from iptables-legacy when a ruleset is applied to nf_tables,
// in the namespace of the thread.
type migration struct {
	ruleset rules.Ruleset
	// started reports whether nft's Apply has called begin. exclusive reports whether Apply held
	// the lock of the namespace when it called begin.
	started, exclusive bool
	// old contains Sluice's tables in iptables-legacy before the change. oldIsComplete reports
	// whether all tables were read.
	old           []rules.Table
	oldIsComplete bool
	// gateWriter inserts the gate (a chain that drops TCP packets) before old rules that would
	// interfere with the rules in nf_tables.
	gateWriter writer
}

// begin reads Sluice's rules in iptables-legacy, and inserts the gate before rules that would
// interfere with the rules in nf_tables. It returns no error if iptables-legacy cannot be read:
// missing rules in nf_tables must be restored even if a process of the pod has written a table that
// cannot be read. finish reads the tables again, and returns the error if it still cannot read
// them.
func (m *migration) begin(exclusive bool) error {
	m.started, m.exclusive = true, exclusive
	var err error
	m.old, m.oldIsComplete, err = legacyTables(nil)
	if err != nil {
		return nil
	}
	return m.gateWriter.insertGates(m.old)
}

// finish ends the migration after nft's Apply. It removes the old rules from iptables-legacy. If
// Apply failed, and the rules cannot be in nf_tables, finish removes the gate instead.
func (m *migration) finish(applied nft.Result, err error) (Result, error) {
	if err != nil && !mayBeApplied(applied) {
		if len(m.gateWriter.replaced) > 0 {
			err = withLock(func(bool) error { return m.gateWriter.undo(err) })
		}
		return m.gateWriter.resultAfterFailure(m.old), err
	}
	result := Result{Result: applied, Backend: BackendNFT}
	if m.started && m.exclusive && m.oldIsComplete && len(m.old) == 0 {
		result.legacyEmpty = true
		return result, err
	}
	if len(m.old) > 0 {
		result.Outcome = nft.Replaced
	}
	// Read the tables even if begin has read them, because another process may have changed them
	// since then.
	current, isComplete, readErr := legacyTables(nil)
	if readErr != nil {
		return result, errors.Join(err, fmt.Errorf("the rules are in nftables, but it is unknown"+
			" whether iptables-legacy has rules of Sluice: %w", readErr))
	}
	result.legacyEmpty = isComplete && len(current) == 0
	var clearErr error
	if len(current) > 0 {
		result.Moved, result.Outcome = true, nft.Replaced
		nft.WaitForPackets() // no packet may miss both rulesets
		clearErr = withLock(func(bool) error { return result.clearLegacy(m.ruleset) })
	}
	if clearErr != nil {
		clearErr = fmt.Errorf("the rules are in nftables, but not all of Sluice's rules in"+
			" iptables-legacy were removed: %w", clearErr)
	}
	return result, errors.Join(err, clearErr)
}

// mayBeApplied reports whether the rules of a failed Apply may be in nf_tables: Apply has returned
// an outcome, and the namespace has a table of Sluice or cannot be read.
func mayBeApplied(applied nft.Result) bool {
	if applied.Outcome == "" {
		return false
	}
	// The kernel's reply may have been lost. Reading may succeed now.
	tables, err := nftTables(nil)
	return len(tables) > 0 || err != nil
}

// clearLegacy removes Sluice's rules from iptables-legacy in the namespace of the thread, and the
// routes that the ruleset does not need. If nf_tables has no rules of Sluice, it removes nothing.
// If nf_tables has other rules than the ruleset, it keeps the routes.
func (r *Result) clearLegacy(rs rules.Ruleset) error {
	found, err := nft.Read(nil)
	// If nf_tables has no rules, another process may have moved them to iptables-legacy. Keep them.
	if len(found.Tables) == 0 || err != nil {
		return err
	}
	if _, err := removeLegacy(); err != nil {
		return err
	}
	if !rules.Equal(rules.Ruleset{Tables: rs.Tables}, rules.Ruleset{Tables: found.Tables}) {
		return nil // another process has replaced the rules, and needs other routes
	}
	// nft.Apply kept ::6 because it might have belonged to Istio.
	pruned, err := route.Prune(nil, rs.Routing)
	r.Routes += pruned
	return err
}

// Plan implements Backend.
func (nftBackend) Plan(ns *netns.NS, rs rules.Ruleset, prev Snapshot) (Plan, error) {
	if prev.empty {
		transaction, err := nft.Encode(rs)
		if err != nil {
			return Plan{}, err
		}
		return newNFTPlan(nft.Created, transaction), nil
	}
	outcome, transaction, err := nft.Plan(ns, rs)
	if err != nil {
		return Plan{}, err
	}
	old, _, err := legacyTables(ns)
	if err != nil {
		return Plan{}, err
	}
	p := newNFTPlan(outcome, transaction)
	if len(old) > 0 {
		p.Outcome = nft.Replaced
	}
	return p, nil
}

func newNFTPlan(outcome nft.Outcome, t *nft.Transaction) Plan {
	p := Plan{Backend: BackendNFT, Outcome: outcome}
	if t != nil {
		p.Text, p.Bytes = t.String(), len(t.Bytes())
	}
	return p
}

// Check implements Backend. It does not read iptables-legacy if prev was in sync and nf_tables has
// not changed since then, or if nf_tables is in sync and prev.legacyEmpty is set: the legacy
// backend removes Sluice's table from nf_tables when it applies.
func (nftBackend) Check(ns *netns.NS, rs rules.Ruleset, prev Snapshot) (Comparison, error) {
	if !prev.inSync {
		prev.Generation = 0 // makes ReadSince read the rules even if they have not changed
	}
	found, err := nft.ReadSince(ns, prev.Generation, rs.Routing)
	if err != nil {
		return Comparison{}, err
	}
	if found.Generation != 0 && found.Generation == prev.Generation {
		// The rules have not changed, and ReadSince has read only the routes.
		diffs := rules.Compare(rules.Ruleset{Routing: rs.Routing}, found.Ruleset)
		return Comparison{
			Backend: BackendNFT, Differences: diffs, HasRules: prev.hasRules, Snapshot: prev,
		}, nil
	}
	diffs := rules.Compare(rs, found.Ruleset)
	if len(diffs) > 0 && !rs.HasCounters() {
		// Additional counters affect no packet.
		if fewer := rules.Compare(rs, found.WithoutCounters()); len(fewer) < len(diffs) {
			diffs = fewer
		}
	}
	c := Comparison{Backend: BackendNFT, Differences: diffs, HasRules: hasRules(found.Tables)}
	if !prev.legacyEmpty || len(c.Differences) > 0 {
		var old []rules.Table
		old, _, err = legacyTables(ns)
		c.Differences = append(c.Differences, rulesInOtherBackend(BackendLegacy, old)...)
	}
	c.Snapshot = Snapshot{
		Generation: found.Generation, backend: BackendNFT,
		inSync: err == nil && len(c.Differences) == 0, hasRules: c.HasRules,
	}
	switch {
	case len(c.Differences) > 0:
		c.Snapshot.lastRead = found
	case rs.HasCounters():
		c.Packets = rules.PacketsByRule(rs, found.Ruleset)
	}
	return c, err
}

// Read implements Backend.
func (nftBackend) Read(ns *netns.NS) (rules.Ruleset, error) { return nft.Read(ns) }

// Remove implements Backend.
func (nftBackend) Remove(ns *netns.NS) (removed bool, err error) {
	old, _, legacyErr := legacyTables(ns)
	if legacyErr != nil || len(old) > 0 { // rules in iptables-legacy need the routes
		removed, err = nft.RemoveRules(ns)
	} else {
		removed, err = nft.Remove(ns)
	}
	if nft.IsNotSupported(err) {
		err = nil // a kernel without nf_tables has no rules to remove
	}
	return removed, errors.Join(err, legacyErr)
}

// legacyTables returns Sluice's tables in iptables-legacy. It returns none if the kernel does not
// support iptables-legacy. It also returns none, and isComplete is false, if the process has no
// permission to list the tables (EACCES of /proc/net/ip_tables_names), for example without
// CAP_DAC_OVERRIDE if another user namespace owns the network namespace. With an error, isComplete
// is false.
func legacyTables(ns *netns.NS) (found []rules.Table, isComplete bool, err error) {
	err = ns.DoNamed(func() error {
		current, err := readLegacy(sluiceRules)
		found = current.list()
		return err
	})
	switch {
	case IsNotSupported(err):
		return nil, true, nil
	case errors.Is(err, unix.EACCES):
		return nil, false, nil
	}
	return found, err == nil, err
}
