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

// Choose returns the backend of the engine, or with [EngineAuto] one that finds out what the kernel can: the kernel is asked, and programs
// that are installed have no say.
//
// The automatic one applies with nft, and with legacy where the kernel answers that it lacks what the ruleset needs of nf_tables; the
// transaction itself is the question, so that where nf_tables works it costs nothing, and it needs no privilege beyond that. It reads and
// checks what the engine has that holds our rules. Where none does, and for a plan, it asks with nft.Probe, or without the privilege for
// that by a reading.
func Choose(e Engine) (Backend, error) {
	if e == EngineAuto {
		return autoBackend{}, nil
	}
	for _, b := range Backends() {
		if b.Engine() == e {
			return b, nil
		}
	}
	return nil, fmt.Errorf("%q is not a backend: want %s, %s or %s", string(e), string(EngineAuto), string(EngineNFT), string(EngineLegacy))
}

// autoBackend is described at Choose.
type autoBackend struct{}

func (autoBackend) Engine() Engine { return EngineAuto }

// Apply implements Backend.
func (b autoBackend) Apply(ns *netns.NS, rs rules.Ruleset) (Result, error) {
	return b.Mend(ns, rs, Comparison{})
}

// Mend implements Backend.
func (autoBackend) Mend(ns *netns.NS, rs rules.Ruleset, found Comparison) (Result, error) {
	result, err := nftBackend{}.Mend(ns, rs, found)
	if result.Outcome != "" || !lacksNFT(err) {
		return result, err
	}
	result, legacyErr := legacyBackend{}.Apply(ns, rs)
	if legacyErr != nil && result.Outcome == "" {
		return result, &neitherError{nft: err, legacy: legacyErr}
	}
	return result, legacyErr
}

// lacksNFT tells whether the error says that the kernel lacks something of nf_tables.
func lacksNFT(err error) bool {
	var refused *nft.KernelError
	switch {
	case err == nil, errors.Is(err, route.ErrNoIPv6):
		return false
	case errors.As(err, &refused) && refused.Errno == unix.ENOENT:
		return true // no such type of expression or chain; no message names anything else that need be there
	}
	return nft.IsNotSupported(err)
}

// A neitherError tells that no engine could do it.
type neitherError struct{ nft, legacy error }

// Error says what each engine lacks, and what to do.
func (e *neitherError) Error() string {
	text := fmt.Sprintf("nftables cannot be used here: %v\niptables-legacy cannot be used here either: %v", e.nft, e.legacy)
	if IsNotSupported(e.legacy) {
		text += "\nload the modules that are named, or run a kernel with the options of one of the two"
	}
	return text
}

// Unwrap returns both reasons.
func (e *neitherError) Unwrap() []error { return []error{e.nft, e.legacy} }

// Plan implements Backend.
func (b autoBackend) Plan(ns *netns.NS, rs rules.Ruleset) (Plan, error) {
	return b.pick(ns, rs).Plan(ns, rs)
}

// Draft implements Backend.
func (b autoBackend) Draft(rs rules.Ruleset) (Plan, error) { return b.pick(nil, rs).Draft(rs) }

// Check implements Backend.
func (b autoBackend) Check(ns *netns.NS, rs rules.Ruleset) (Comparison, error) {
	return b.holder(ns, rs).Check(ns, rs)
}

// Recheck implements Backend.
func (b autoBackend) Recheck(ns *netns.NS, rs rules.Ruleset, last Comparison) (Comparison, error) {
	if last.Engine == EngineNFT {
		return nftBackend{}.Recheck(ns, rs, last)
	}
	return b.Check(ns, rs)
}

// Read implements Backend.
func (b autoBackend) Read(ns *netns.NS) (rules.Ruleset, error) {
	return b.holder(ns, rules.Ruleset{}).Read(ns)
}

// Remove implements Backend: it removes from both engines.
func (autoBackend) Remove(ns *netns.NS) (bool, error) {
	// The last one removes the routes, with ::6 if rules of ours were there: nft's, unless there is none.
	fromLegacy, legacyErr := legacyBackend{}.Remove(ns)
	fromNFT, err := nftBackend{}.Remove(ns)
	return fromLegacy || fromNFT, errors.Join(legacyErr, err)
}

// holder is the backend that alone holds our rules, or else the one that Apply would use.
func (b autoBackend) holder(ns *netns.NS, rs rules.Ruleset) Backend {
	if holders, err := Holders(ns); err == nil && len(holders) == 1 {
		return holders[0]
	}
	return b.pick(ns, rs)
}

// pick is the backend that Apply would use, as far as can be told without trying.
func (autoBackend) pick(ns *netns.NS, rs rules.Ruleset) Backend {
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

// needs tells whether nft rules of the ruleset need a feature.
func needs(rs *rules.Ruleset, f nft.Feature) bool {
	switch f {
	case nft.FeatureTProxy:
		return anyRule(rs, func(r *rules.Rule) bool { return has[rules.TProxy](r.Actions) })
	case nft.FeatureZone:
		return anyRule(rs, func(r *rules.Rule) bool { return has[rules.SetZone](r.Actions) || has[rules.MatchState](r.Matches) })
	case nft.FeatureRoute:
		return anyChain(rs, func(c *rules.Chain) bool { return c.Base != nil && c.Base.Type == rules.Route })
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

// has tells whether one of the values is of type T.
func has[T, V any](values []V) bool {
	for _, v := range values {
		if _, ok := any(v).(T); ok {
			return true
		}
	}
	return false
}
