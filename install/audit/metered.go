package audit

import (
	"context"
	"net/netip"

	"github.com/sluice-mesh/sluice/compat"
	"github.com/sluice-mesh/sluice/compat/foreign"
	"github.com/sluice-mesh/sluice/nft/established"
	"github.com/sluice-mesh/sluice/rules"
	"github.com/sluice-mesh/sluice/rules/diff"
)

// A meteredNamespace adds the processor time of its methods to the processor time of an audit. The
// cost of these methods depends on the pod's addresses, rules and connections. The time between
// them is not added: an audit may wait for the API server and for locks while the process does
// other work. Methods that read or write rules hold [Options.RuleLock].
type meteredNamespace struct {
	Namespace
	run *auditRun
}

// measure returns a function that adds the processor time since the call of measure. It includes
// garbage collection and the other work of the process in this time.
func (m meteredNamespace) measure() func() {
	before := m.run.ProcessorTime()
	return func() { m.run.processorTime += m.run.ProcessorTime() - before }
}

// lockAndMeasure acquires [Options.RuleLock], unless the audit holds it already. It returns a
// function that adds the processor time, and releases the lock if lockAndMeasure has acquired it.
func (m meteredNamespace) lockAndMeasure() func() {
	isHeld := m.run.holdsRuleLock
	m.run.lockRules()
	end := m.measure()
	return func() {
		end()
		if !isHeld {
			m.run.unlockRules()
		}
	}
}

// lockRules acquires [Options.RuleLock], unless the audit holds it already.
func (r *auditRun) lockRules() {
	if !r.holdsRuleLock {
		_ = r.RuleLock.Acquire(context.Background()) // never fails; see rulelock.Lock for the wait
		r.holdsRuleLock = true
	}
}

// unlockRules releases [Options.RuleLock] if the audit holds it.
func (r *auditRun) unlockRules() {
	if r.holdsRuleLock {
		r.holdsRuleLock = false
		r.RuleLock.Release()
	}
}

func (m meteredNamespace) Addresses() ([]netip.Addr, error) {
	defer m.measure()()
	return m.Namespace.Addresses()
}

func (m meteredNamespace) Check(
	b compat.BackendName, rs rules.Ruleset, last compat.Snapshot,
) (compat.Comparison, error) {
	defer m.lockAndMeasure()()
	return m.Namespace.Check(b, rs, last)
}

func (m meteredNamespace) Repair(
	b compat.BackendName, rs rules.Ruleset, found compat.Comparison,
) (compat.Result, error) {
	defer m.lockAndMeasure()()
	return m.Namespace.Repair(b, rs, found)
}

func (m meteredNamespace) HasNoRules() (bool, error) {
	defer m.lockAndMeasure()()
	return m.Namespace.HasNoRules()
}

func (m meteredNamespace) Foreign(
	rs rules.Ruleset, equal bool, last *foreign.Snapshot, b diff.Budget,
) foreign.Snapshot {
	defer m.lockAndMeasure()()
	return m.Namespace.Foreign(rs, equal, last, b)
}

func (m meteredNamespace) EndConnections(
	rs rules.Ruleset, o established.Options,
) (established.Report, error) {
	defer m.lockAndMeasure()()
	return m.Namespace.EndConnections(rs, o)
}

func (m meteredNamespace) Istio() ([]string, error) {
	defer m.lockAndMeasure()()
	return m.Namespace.Istio()
}
