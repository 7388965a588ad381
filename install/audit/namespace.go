package audit

import (
	"errors"
	"net/netip"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/compat"
	"github.com/sluice-mesh/sluice/compat/foreign"
	"github.com/sluice-mesh/sluice/compat/livetrace"
	"github.com/sluice-mesh/sluice/install/sandbox"
	"github.com/sluice-mesh/sluice/nft"
	"github.com/sluice-mesh/sluice/nft/established"
	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/nft/route"
	"github.com/sluice-mesh/sluice/rules"
	"github.com/sluice-mesh/sluice/rules/diff"
)

// Open opens the network namespace of a sandbox on this node.
func Open(s sandbox.Sandbox) (Namespace, error) {
	ns, err := s.Open()
	if err != nil {
		return nil, err
	}
	return In(ns), nil
}

// In returns a [Namespace] for an open network namespace. Its Close closes ns.
func In(ns *netns.NS) Namespace { return namespace{ns} }

// ProcessorTime returns the processor time of this process.
func ProcessorTime() time.Duration {
	var r unix.Rusage
	_ = unix.Getrusage(unix.RUSAGE_SELF, &r) // never fails
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}

// namespace implements Namespace with the kernel.
type namespace struct{ ns *netns.NS }

func (n namespace) NS() *netns.NS                    { return n.ns }
func (n namespace) Close() error                     { return n.ns.Close() }
func (n namespace) Addresses() ([]netip.Addr, error) { return route.Addresses(n.ns) }

func (n namespace) Check(
	backend compat.BackendName, rs rules.Ruleset, last compat.Snapshot,
) (compat.Comparison, error) {
	b, err := compat.Choose(backend)
	if err != nil {
		return compat.Comparison{}, err
	}
	return b.Check(n.ns, rs, last)
}

func (n namespace) Repair(
	backend compat.BackendName, rs rules.Ruleset, found compat.Comparison,
) (compat.Result, error) {
	b, err := compat.Choose(backend)
	if err != nil {
		return compat.Result{}, err
	}
	return b.Apply(n.ns, rs, found.Snapshot)
}

// HasNoRules implements Namespace. A backend that the kernel does not support contains no rules.
func (n namespace) HasNoRules() (bool, error) {
	for _, b := range compat.Backends() {
		found, err := b.Read(n.ns)
		if compat.IsNotSupported(err) {
			continue
		}
		if err != nil {
			return false, err
		}
		for range found.AllRules() {
			return false, nil
		}
	}
	return true, nil
}

// Foreign implements Namespace. It also removes the rules that a killed trace has left.
func (n namespace) Foreign(
	rs rules.Ruleset, equal bool, last *foreign.Snapshot, b diff.Budget,
) foreign.Snapshot {
	if last != nil && last.IsValid(n.ns) {
		return *last
	}
	inspect := foreign.InspectDrifted
	if equal {
		inspect = foreign.Inspect
	}
	s := inspect(n.ns, rs, b)
	if s.Traced {
		// If this fails, the rules remain and the next audit tries again. These rules do not change
		// packets.
		_, _ = livetrace.RemoveStale(n.ns)
	}
	return s
}

// EndConnections implements Namespace.
func (n namespace) EndConnections(
	rs rules.Ruleset, o established.Options,
) (established.Report, error) {
	return established.End(n.ns, rs, o)
}

// Istio implements Namespace.
func (n namespace) Istio() ([]string, error) {
	inNFT, err := nft.FindIstio(n.ns)
	if nft.IsNotSupported(err) {
		err = nil
	}
	inLegacy, legacyErr := compat.FindLegacyIstio(n.ns)
	if compat.IsNotSupported(legacyErr) {
		legacyErr = nil
	}
	return slices.Concat(inNFT, inLegacy), errors.Join(err, legacyErr)
}
