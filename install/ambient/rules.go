package ambient

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"go.uber.org/zap"

	"github.com/sluice-mesh/sluice/compat"
	"github.com/sluice-mesh/sluice/install/audit"
	"github.com/sluice-mesh/sluice/nft"
	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/plugin/source"
	"github.com/sluice-mesh/sluice/rules"
)

// Rules describes the rules that the node has installed in a pod, for the audit. It returns nil if
// the node has installed none. It returns an error if the pod's network namespace cannot be opened,
// or if ctx is done before other work on the rules has ended. The caller must call Release unless
// the result is nil. TakeRepaired returns a limited number of differences, and must not be called
// after Release.
func (n *Node) Rules(ctx context.Context, uid string) (*audit.AmbientPod, error) {
	p := n.pod(source.Ref{UID: uid}, false)
	if p == nil {
		return nil, nil
	}
	lock, err := p.acquireRules(ctx)
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	// If the network namespace was replaced meanwhile, install calls RulesChanged when the pod has
	// rules again.
	if !p.isCurrent(lock) || p.backend == "" {
		lock.Release(1)
		return nil, nil
	}
	ns, err := netns.FromHandle(p.ns.Handle())
	if err != nil {
		lock.Release(1)
		return nil, err
	}
	return &audit.AmbientPod{
		Namespace: audit.In(ns), NetNS: ns.ID(), Parameters: p.ambient, Backend: p.backend,
		TakeRepaired: func() (repaired *compat.Comparison) {
			p.mu.Lock()
			defer p.mu.Unlock()
			if p.isCurrent(lock) {
				repaired, p.repaired = p.repaired, nil
			}
			return repaired
		},
		Release: func() {
			_ = ns.Close()
			lock.Release(1)
		},
	}, nil
}

// lockRules acquires RuleLock, and returns a function that releases it. If isADD is set, it takes
// precedence over waiting audits and reconciliations. It returns an error if ctx is done first.
func (n *Node) lockRules(ctx context.Context, isADD bool) (unlock func(), err error) {
	acquire := n.RuleLock.Acquire
	if isADD {
		acquire = n.RuleLock.AcquireFirst
	}
	return n.RuleLock.Release, acquire(ctx)
}

// install installs the rules in the pod and reads them back. If this fails and the pod had no rules
// before, install removes the new rules. If rulesExpected is set, or the node has installed rules
// with the same parameters, the pod should have the rules already. In this case install writes only
// if the rules differ, and stores the differences for the audit.
func (n *Node) install(
	ctx context.Context, p *pod, a rules.Ambient, isADD, rulesExpected bool,
) (applied compat.Result, err error) {
	rs, err := rules.CompileAmbient(a)
	if err != nil {
		return applied, err
	}
	defer func() { n.RulesChanged(p.ref.UID) }()
	lock, err := p.acquireRules(ctx)
	if err != nil {
		return applied, err
	}
	defer lock.Release(1)
	unlock, err := n.lockRules(ctx, isADD)
	if err != nil {
		return applied, err
	}
	defer unlock()
	var found compat.Comparison
	if rulesExpected || p.backend != "" && reflect.DeepEqual(p.ambient, a) {
		found, err = compat.CheckReadable(n.Backend, p.ns, rs, compat.Snapshot{})
		if err != nil {
			return applied, err
		}
		if len(found.Differences) == 0 {
			p.ambient, p.backend = a, found.Backend
			applied.Outcome, applied.Backend = nft.Unchanged, found.Backend
			return applied, nil
		}
	}
	applied, err = n.Backend.Apply(p.ns, rs, found.Snapshot)
	if compat.IsLegacyTooLarge(applied.Backend, err) {
		// verify checks the rules in nf_tables. The audit reports the state of the pod as unknown.
		n.Log.Warn("the tables of iptables-legacy of a pod in ambient mode cannot be read",
			podField(p.ref), zap.Error(err))
		err = nil
	}
	if err == nil {
		err = n.verify(p, rs, applied)
	}
	if err != nil {
		if applied.Outcome == nft.Created {
			p.backend = ""
			if removeErr := removeRules(p.ns); removeErr != nil {
				err = errors.Join(err, fmt.Errorf("the rules cannot be removed: %w", removeErr))
			}
		}
		return applied, err
	}
	p.ambient, p.backend = a, applied.Backend
	if len(found.Differences) > 0 && !applied.Moved {
		p.repaired = storableCopy(found)
	}
	return applied, nil
}

// maxStoredDifferences limits the number of differences that are stored until the audit reports
// them, and maxStoredText the length of each of their texts in bytes.
const (
	maxStoredDifferences = 100
	maxStoredText        = 1 << 10
)

// storableCopy returns a copy of a comparison without the rules that it has read, and with a
// limited number of differences. A process of the pod determines their number and size, and an
// agent that starts may store the differences of many pods.
func storableCopy(found compat.Comparison) *compat.Comparison {
	found.Snapshot, found.Packets = compat.Snapshot{}, nil
	found.Differences = slices.Clone(found.Differences[:min(len(found.Differences),
		maxStoredDifferences)])
	for i := range found.Differences {
		d := &found.Differences[i]
		for _, text := range []*string{&d.Where, &d.Want, &d.Got} {
			if len(*text) > maxStoredText {
				*text = strings.Clone((*text)[:maxStoredText]) + " ..."
			}
		}
	}
	return &found
}

// verify returns an error that lists the differences between the rules in the kernel and rs, if
// there are any.
func (n *Node) verify(p *pod, rs rules.Ruleset, applied compat.Result) error {
	found, err := compat.CheckReadable(n.Backend, p.ns, rs, applied.Snapshot())
	if err != nil || len(found.Differences) == 0 {
		return err
	}
	return fmt.Errorf("the rules in the kernel differ from the rules that were sent: %s",
		strings.Join(rules.DifferenceTexts(found.Differences), "; "))
}

// uninstallRules removes the rules of a pod if its network namespace is known and not the node's.
// The caller holds the pod's lock. uninstallRules returns an error if ctx is done before an audit
// of the pod, or other work on rules, has ended.
func (n *Node) uninstallRules(ctx context.Context, p *pod) error {
	if p.ns == nil || n.IsHost(p.ns.ID()) {
		return nil
	}
	defer func() { n.RulesChanged(p.ref.UID) }()
	lock, err := p.acquireRules(ctx)
	if err != nil {
		return err
	}
	defer lock.Release(1)
	unlock, err := n.lockRules(ctx, false)
	if err != nil {
		return err
	}
	defer unlock()
	err = removeRules(p.ns)
	if p.backend != compat.BackendLegacy {
		err = n.ignoreLegacyTooLarge(p, err)
	}
	if err != nil {
		return err
	}
	p.backend, p.enrolled = "", false
	return nil
}

// ignoreLegacyTooLarge returns err, the error of a removal of rules from all backends. If err only
// means that the tables of iptables-legacy are too large to read, and nf_tables has no rules of
// Sluice, it logs err and returns nil. The caller holds RuleLock.
func (n *Node) ignoreLegacyTooLarge(p *pod, err error) error {
	if !compat.IsLegacyTooLarge(compat.BackendNFT, err) {
		return err
	}
	if found, readErr := nft.Read(p.ns); readErr != nil || len(found.Tables) > 0 {
		return err
	}
	n.Log.Warn("rules of ambient mode or of istio-cni may remain in a pod, because its tables of "+
		"iptables-legacy cannot be read", podField(p.ref), zap.Error(err))
	return nil
}

// removeRules removes the rules of all backends and the routes from a network namespace, because an
// earlier agent may have used another backend.
func removeRules(ns *netns.NS) error {
	var errs []error
	for _, b := range compat.Backends() {
		_, err := b.Remove(ns)
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
