package compat

import (
	"errors"

	"github.com/sluice-mesh/sluice/nft"
	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/rules"
)

// Engine names a part of the kernel that carries out rules.
type Engine string

// The engines.
const (
	EngineNFT    Engine = "nft"    // nf_tables
	EngineLegacy Engine = "legacy" // the tables of iptables-legacy and ip6tables-legacy
)

// EngineAuto stands for the first engine that the kernel has, nft before legacy: see [Choose].
const EngineAuto Engine = "auto"

// String says in words what the engine is.
func (e Engine) String() string {
	if e == EngineLegacy {
		return "iptables-legacy"
	}
	return string(e)
}

// A Backend puts rulesets into network namespaces by an engine of the kernel. Callers get one from [Choose], [Holders] or [Backends]
// and need not know which it is. A nil namespace is the current one.
//
// All methods are safe for concurrent use, also from several processes in one namespace. Their errors answer [IsNotPermitted] and
// [IsNotSupported].
type Backend interface {
	// Engine is the engine's name; auto if it depends on what the kernel answers to Apply.
	Engine() Engine
	// Apply makes the ruleset of rules.Compile that of the namespace: routes first, then the rules; then what the other engine has of
	// ours is removed, and routes that are no longer needed. If it is all there already, nothing is written. At no moment does a
	// connection pass the proxy that both the old and the new rules capture.
	//
	// If it returns an error and no outcome, the namespace is as before. An outcome beside an error is what the rules have become
	// nevertheless: they are in place, or may be, and the error says what else is not; or not all that was written could be taken
	// back.
	Apply(ns *netns.NS, rs rules.Ruleset) (Result, error)
	// Mend is Apply after a Check or Recheck of the same namespace and ruleset that has found differences. What was found then is not
	// read again where the kernel can tell that no rule has changed since, which it can of nft.
	Mend(ns *netns.NS, rs rules.Ruleset, found Comparison) (Result, error)
	// Plan returns what Apply would do now. It reads, and changes nothing.
	Plan(ns *netns.NS, rs rules.Ruleset) (Plan, error)
	// Draft is the plan for a namespace that has nothing of ours. It asks the kernel nothing.
	Draft(rs rules.Ruleset) (Plan, error)
	// Check compares what the namespace holds of ours with what Apply leaves: rules, routes, and no rules in the other engine.
	// Everything is read from the kernel. What somebody else has put into our routing (rules.Routing.Others) is a difference as well,
	// and one that Apply does not take away.
	Check(ns *netns.NS, rs rules.Ruleset) (Comparison, error)
	// Recheck is Check for a namespace in which an earlier Check or Recheck of the same ruleset found no difference. It costs a fraction
	// where the kernel can tell that no rule has changed since, which it can of nft.
	Recheck(ns *netns.NS, rs rules.Ruleset, last Comparison) (Comparison, error)
	// Read returns our rules, in the engine's own form, and our routes. It has no tables if there are no rules of ours.
	Read(ns *netns.NS) (rules.Ruleset, error)
	// Remove takes our rules out of the engine, and the routes with them unless the other engine has rules of ours that need them. It
	// tells whether there was anything. A kernel without the engine has nothing of ours in it.
	Remove(ns *netns.NS) (bool, error)
}

// A Result describes what [Backend.Apply] or [Backend.Mend] did. Sets, elements and bytes are nft's, and 0 with legacy, where rules are
// counted as they are in both families' tables.
type Result struct {
	nft.Result
	// Engine is the one that has the rules.
	Engine Engine
	// Moved tells that there were rules of ours in the other engine, which are removed now, unless an error says that not all are. The
	// outcome is then "replaced".
	Moved bool
}

// A Plan is what [Backend.Apply] would do.
type Plan struct {
	Engine  Engine
	Outcome nft.Outcome
	// Text is what would be given to the kernel: with nft a line for each message; with legacy what iptables-restore and
	// ip6tables-restore load, each after a line that names it. Empty if nothing would.
	Text string
	// Bytes is the size of nft's transaction.
	Bytes int
}

// A Comparison is what [Backend.Check] has found.
type Comparison struct {
	// Engine is the one of which the rules were compared.
	Engine Engine
	// Differences are empty if the namespace holds exactly what Apply leaves.
	Differences []rules.Difference
	// Rules tells that the engine has rules of ours.
	Rules bool
	// Generation is that of nft's tables then, for Recheck; 0 if it is not known.
	Generation uint32
	// reading is what nft has, for Mend; nothing if there is no difference.
	reading nft.Reading
}

// anyRules tells whether there are rules of ours.
func anyRules(tables []rules.Table) bool {
	rs := rules.Ruleset{Tables: tables}
	return anyRule(&rs, func(*rules.Rule) bool { return true })
}

// Backends are all there are, the preferred one first.
func Backends() []Backend { return []Backend{nftBackend{}, legacyBackend{}} }

// Holders returns the backends that have rules of ours in the namespace. What cannot be read is in the error, beside those found.
func Holders(ns *netns.NS) ([]Backend, error) {
	var holders []Backend
	var faults []error
	for _, b := range Backends() {
		rs, err := b.Read(ns)
		switch {
		case err != nil && !IsNotSupported(err):
			faults = append(faults, err)
		case len(rs.Tables) > 0:
			holders = append(holders, b)
		}
	}
	return holders, errors.Join(faults...)
}
