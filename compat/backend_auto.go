package compat

import (
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/nft"
	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/nft/route"
	"github.com/sluice-mesh/sluice/rules"
)

// Choose returns the backend with the name.
//
// [BackendAuto] applies with nft. It falls back to legacy if the kernel rejects the transaction
// because it lacks an nf_tables feature that the ruleset needs. This test costs nothing if
// nf_tables works, needs no additional privileges, and does not depend on installed programs. Check
// and Read use the backend that holds Sluice's rules. If neither backend holds rules, and for Plan,
// the backend is chosen with nft.Probe, or without its privileges by reading the nftables rules.
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

// autoBackend implements [BackendAuto], see [Choose]. It inherits Apply from an nftBackend with the
// fallback.
type autoBackend struct{ nftBackend }

func (autoBackend) Name() BackendName { return BackendAuto }

// fallBack applies the ruleset with legacy in the namespace of the thread, after nft failed with
// nftErr.
func fallBack(rs rules.Ruleset, nftErr error) (Result, error) {
	result, err := legacyBackend{}.Apply(nil, rs, Snapshot{})
	if err != nil && result.Outcome == "" {
		return result, &unsupportedError{nft: nftErr, legacy: err}
	}
	return result, err
}

// lacksNFT reports whether the error means that the kernel lacks a feature of nf_tables.
func lacksNFT(err error) bool {
	var kernelErr *nft.KernelError
	switch {
	case err == nil, errors.Is(err, route.ErrNoIPv6):
		return false
	case errors.As(err, &kernelErr) && kernelErr.Errno == unix.ENOENT:
		// An unknown expression or chain type: the transaction creates all other objects it uses.
		return true
	}
	return nft.IsNotSupported(err)
}

// An unsupportedError means that neither backend can apply a ruleset.
type unsupportedError struct{ nft, legacy error }

// Error returns the error of each backend, and the remedy.
func (e *unsupportedError) Error() string {
	text := fmt.Sprintf("cannot use nftables: %v\ncannot use iptables-legacy: %v",
		e.nft, e.legacy)
	if IsNotSupported(e.legacy) {
		text += "\nload the named modules, or use a kernel with the named options of one of the two"
	}
	return text
}

// Unwrap returns the errors of both backends.
func (e *unsupportedError) Unwrap() []error { return []error{e.nft, e.legacy} }

// Plan implements Backend.
func (b autoBackend) Plan(ns *netns.NS, rs rules.Ruleset, prev Snapshot) (Plan, error) {
	if prev.empty {
		ns = nil
	}
	return b.supported(ns, rs).Plan(ns, rs, prev)
}

// Check implements Backend.
func (b autoBackend) Check(ns *netns.NS, rs rules.Ruleset, prev Snapshot) (Comparison, error) {
	if prev.backend == BackendNFT {
		return b.nftBackend.Check(ns, rs, prev)
	}
	return b.installed(ns, rs).Check(ns, rs, prev)
}

// Read implements Backend.
func (b autoBackend) Read(ns *netns.NS) (rules.Ruleset, error) {
	return b.installed(ns, rules.Ruleset{}).Read(ns)
}

// Remove implements Backend: it removes from both backends.
func (b autoBackend) Remove(ns *netns.NS) (bool, error) {
	// The last backend with rules removes the routes and ::6: nft, if it has any.
	fromLegacy, legacyErr := legacyBackend{}.Remove(ns)
	fromNFT, err := b.nftBackend.Remove(ns)
	return fromLegacy || fromNFT, errors.Join(legacyErr, err)
}

// installed returns the backend that holds Sluice's rules, or otherwise the one that Apply would
// use.
func (b autoBackend) installed(ns *netns.NS, rs rules.Ruleset) Backend {
	if backends, err := InstalledBackends(ns); err == nil && len(backends) == 1 {
		return backends[0]
	}
	return b.supported(ns, rs)
}

// supported returns the backend that Apply would probably use. Only Apply determines it with
// certainty.
func (autoBackend) supported(ns *netns.NS, rs rules.Ruleset) Backend {
	features, err := nft.Probe()
	if err != nil {
		_, err = nft.Read(ns)
		features = []nft.Support{{Feature: nft.FeatureTables, Err: err}}
	}
	for _, s := range features {
		if s.Err != nil && lacksNFT(s.Err) && needs(&rs, s.Feature) {
			return legacyBackend{}
		}
	}
	return nftBackend{}
}

// needs reports whether the ruleset needs the feature of nf_tables.
func needs(rs *rules.Ruleset, f nft.Feature) bool {
	switch f {
	case nft.FeatureTProxy:
		return anyRule(rs, func(r *rules.Rule) bool { return has[rules.TProxy](r.Actions) })
	case nft.FeatureZone:
		return anyRule(rs, func(r *rules.Rule) bool {
			return has[rules.SetZone](r.Actions) || has[rules.MatchState](r.Matches)
		})
	case nft.FeatureRoute:
		return anyChain(rs, func(c *rules.Chain) bool {
			return c.Base != nil && c.Base.Type == rules.Route
		})
	case nft.FeatureInterval:
		return slices.ContainsFunc(rs.Tables, func(t rules.Table) bool { return len(t.Sets()) > 0 })
	}
	return true
}

func anyChain(rs *rules.Ruleset, is func(*rules.Chain) bool) bool {
	for i := range rs.Tables {
		for j := range rs.Tables[i].Chains {
			if is(&rs.Tables[i].Chains[j]) {
				return true
			}
		}
	}
	return false
}

func anyRule(rs *rules.Ruleset, is func(*rules.Rule) bool) bool {
	return anyChain(rs, func(c *rules.Chain) bool {
		for i := range c.Rules {
			if is(&c.Rules[i]) {
				return true
			}
		}
		return false
	})
}

// has reports whether one of the values has type T.
func has[T, V any](values []V) bool {
	for _, v := range values {
		if _, ok := any(v).(T); ok {
			return true
		}
	}
	return false
}
