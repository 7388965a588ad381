package compat

import (
	"errors"
	"fmt"

	"github.com/sluice-mesh/sluice/nft"
	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/nft/route"
	"github.com/sluice-mesh/sluice/rules"
)

// Choose returns the backend with the name.
//
// [BackendAuto] applies with nft. It falls back to legacy if the kernel rejects the transaction
// because it lacks an nf_tables feature that the ruleset needs. Detecting this costs nothing if
// nf_tables works, needs no additional privileges, and does not depend on installed programs. Check
// and Read use the backend that holds Sluice's rules, except that Check with a snapshot of nft uses
// nft. If neither or both backends hold rules, or one cannot be read, Check uses the same backend
// as Plan: legacy if [nft.Probe] finds that the kernel lacks a needed feature, and otherwise nft.
// Read does the same for the features that every ruleset needs. A process without the privileges
// for nft.Probe tries to read the nftables rules instead.
func Choose(name BackendName) (Backend, error) {
	switch name {
	case BackendAuto:
		return autoBackend{nftBackend{fallback: true}}, nil
	case BackendNFT:
		return nftBackend{}, nil
	case BackendLegacy:
		return legacyBackend{}, nil
	}
	return nil, fmt.Errorf("%q is not a backend: must be %s, %s or %s",
		string(name), string(BackendAuto), string(BackendNFT), string(BackendLegacy))
}

// autoBackend implements [BackendAuto]; see [Choose]. It inherits Apply from an nftBackend whose
// fallback field is set.
type autoBackend struct{ nftBackend }

func (autoBackend) Name() BackendName { return BackendAuto }

// applyWithLegacy applies the ruleset with legacy in the namespace of the thread, after nft failed
// with nftErr.
func applyWithLegacy(rs rules.Ruleset, nftErr error) (Result, error) {
	result, err := legacyBackend{}.Apply(nil, rs, Snapshot{})
	if err != nil && result.Outcome == "" {
		return result, &unsupportedError{nft: nftErr, legacy: err}
	}
	return result, err
}

// isMissingFeature reports whether the error means that the kernel lacks a feature of nf_tables.
func isMissingFeature(err error) bool {
	var kernelErr *nft.KernelError
	switch {
	case err == nil, errors.Is(err, route.ErrNoIPv6):
		return false
	case errors.As(err, &kernelErr) && kernelErr.IsMissingExpression():
		return true
	}
	return nft.IsNotSupported(err)
}

// An unsupportedError means that neither backend can apply a ruleset.
type unsupportedError struct{ nft, legacy error }

// Error returns the error of each backend, and the remedy if the kernel supports neither.
func (e *unsupportedError) Error() string {
	text := fmt.Sprintf("cannot use nftables: %v\ncannot use iptables-legacy: %v",
		e.nft, e.legacy)
	if IsNotSupported(e.legacy) {
		text += "\nto use either backend, load the modules that its error names, or use a kernel" +
			" with the options that it names"
	}
	return text
}

// Unwrap returns the errors of both backends.
func (e *unsupportedError) Unwrap() []error { return []error{e.nft, e.legacy} }

// Plan implements Backend.
func (b autoBackend) Plan(ns *netns.NS, rs rules.Ruleset, prev Snapshot) (Plan, error) {
	if prev.empty {
		// Plan does not read ns. The kernel supports the same features in every namespace.
		ns = nil
	}
	return b.supportedBackend(ns, rs).Plan(ns, rs, prev)
}

// Check implements Backend.
func (b autoBackend) Check(ns *netns.NS, rs rules.Ruleset, prev Snapshot) (Comparison, error) {
	if prev.backend == BackendNFT {
		return b.nftBackend.Check(ns, rs, prev)
	}
	return b.installedBackend(ns, rs).Check(ns, rs, prev)
}

// Read implements Backend.
func (b autoBackend) Read(ns *netns.NS) (rules.Ruleset, error) {
	return b.installedBackend(ns, rules.Ruleset{}).Read(ns)
}

// Remove implements Backend. It removes the rules of both backends.
func (b autoBackend) Remove(ns *netns.NS) (bool, error) {
	// The backend that removes the last rules also removes the routes and the address ::6: each
	// backend keeps them while the other backend has rules.
	fromLegacy, legacyErr := legacyBackend{}.Remove(ns)
	fromNFT, err := b.nftBackend.Remove(ns)
	return fromLegacy || fromNFT, errors.Join(legacyErr, err)
}

// installedBackend returns the only backend that holds Sluice's rules. If there is no such backend,
// or if a backend cannot be read, it returns the result of supportedBackend.
func (b autoBackend) installedBackend(ns *netns.NS, rs rules.Ruleset) Backend {
	if backends, err := InstalledBackends(ns); err == nil && len(backends) == 1 {
		return backends[0]
	}
	return b.supportedBackend(ns, rs)
}

// supportedBackend returns the backend that Apply would probably use. Only the transaction of Apply
// shows with certainty which features the kernel supports.
func (autoBackend) supportedBackend(ns *netns.NS, rs rules.Ruleset) Backend {
	features, err := nft.Probe()
	if err != nil {
		// Reading needs fewer privileges, and shows at least whether the kernel has nf_tables.
		_, err = nft.Read(ns)
		features = []nft.Support{{Feature: nft.FeatureTables, Err: err}}
	}
	for _, s := range features {
		if s.Err != nil && isMissingFeature(s.Err) && s.Feature.IsNeededBy(&rs) {
			return legacyBackend{}
		}
	}
	return nftBackend{}
}
