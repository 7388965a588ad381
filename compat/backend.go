package compat

import (
	"errors"

	"github.com/sluice-mesh/sluice/nft"
	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/rules"
)

// BackendName names a backend.
type BackendName string

// The names of the backends.
const (
	BackendNFT    BackendName = "nft"    // nf_tables
	BackendLegacy BackendName = "legacy" // the tables of iptables-legacy and ip6tables-legacy
	BackendAuto   BackendName = "auto"   // the first that the kernel supports, nft before legacy: see [Choose]
)

// String returns the name for people: "iptables-legacy" instead of "legacy".
func (n BackendName) String() string {
	if n == BackendLegacy {
		return "iptables-legacy"
	}
	return string(n)
}

// A Backend puts rulesets into network namespaces. Callers get one from [Choose],
// [InstalledBackends] or [Backends]. A nil namespace is the calling thread's.
//
// Apply, Check and Plan take an earlier [Snapshot] of the same namespace, for the same ruleset. It
// saves reading what has not changed since; the zero value is always correct.
//
// All methods are safe for concurrent use, also by several processes in one namespace. Their errors
// answer [IsNotPermitted] and [IsNotSupported].
type Backend interface {
	// Name returns the backend's name. It is auto if the kernel's answer to Apply decides.
	Name() BackendName
	// Apply makes the namespace hold the ruleset of rules.Compile: it adds missing routes, changes
	// the rules, removes our rules from the other backend, and removes routes that are no longer
	// needed. If the namespace holds all of it already, nothing is written. At no moment does a
	// connection bypass the proxy that both the old and the new rules capture.
	//
	// An error without an outcome means that the namespace is unchanged. An error with an outcome
	// means that the rules are in place, or may be, and that the error describes what is not; or
	// that not everything written could be rolled back.
	Apply(ns *netns.NS, rs rules.Ruleset, since Snapshot) (Result, error)
	// Check compares what the namespace holds of ours with what Apply leaves: rules, routes, and no
	// rules of ours in the other backend. Entries of others in our routing tables
	// (rules.Routing.Others) are differences too, although Apply does not remove them.
	Check(ns *netns.NS, rs rules.Ruleset, since Snapshot) (Comparison, error)
	// Read returns our rules, in the backend's own form, and our routes. Without rules of ours the
	// result has no tables.
	Read(ns *netns.NS) (rules.Ruleset, error)
	// Remove deletes our rules, and our routes unless the other backend has rules that need them.
	// It reports whether there was anything to delete. A kernel that lacks the backend has nothing.
	Remove(ns *netns.NS) (bool, error)
	// Plan returns what Apply would do now. It changes nothing. With [EmptySnapshot] it is a dry
	// run for a namespace without rules of ours, which is not read.
	Plan(ns *netns.NS, rs rules.Ruleset, since Snapshot) (Plan, error)
}

// A Result describes what [Backend.Apply] did. Sets, elements and bytes are those of nft; with
// legacy they are 0, and rules are counted in the tables of both families.
type Result struct {
	nft.Result
	// Backend has the rules.
	Backend BackendName
	// Moved reports that the other backend had rules of ours. They are removed, unless the error
	// says otherwise. The outcome is then "replaced".
	Moved bool
	// legacyEmpty has the meaning of Snapshot.legacyEmpty.
	legacyEmpty bool
}

// Snapshot returns what Apply has learned of the namespace, for a Check that follows at once. The
// rules themselves are not part of it: Check reads them from the kernel.
func (r Result) Snapshot() Snapshot {
	return Snapshot{backend: r.Backend, legacyEmpty: r.legacyEmpty}
}

// A Plan is what [Backend.Apply] would do.
type Plan struct {
	Backend BackendName
	Outcome nft.Outcome
	// Text is what would be given to the kernel: with nft one line per message; with legacy the
	// input of iptables-restore and ip6tables-restore, each after a line that names the program.
	// It is empty if nothing would change.
	Text string
	// Bytes is the size of nft's transaction.
	Bytes int
}

// A Comparison is what [Backend.Check] found.
type Comparison struct {
	// Backend is the one whose rules were compared.
	Backend BackendName
	// Differences is empty if the namespace holds exactly what Apply leaves.
	Differences []rules.Difference
	// Rules reports whether the backend has rules of ours.
	Rules bool
	// Snapshot is for a later Check, or an Apply that repairs the differences.
	Snapshot Snapshot
}

// A Snapshot is what a call has read of a namespace. The zero value says nothing.
type Snapshot struct {
	// Generation is the number of nf_tables' state in the namespace, or 0 if it is not known.
	Generation uint32
	backend    BackendName
	// inSync reports that the tables of Generation are those of the ruleset; anyRules that they
	// hold rules.
	inSync, anyRules bool
	// reading is what nf_tables held, if that differed from the ruleset.
	reading nft.Reading
	// legacyEmpty reports that iptables-legacy had no rules of ours when the rules of nf_tables
	// were put in place. That holds as long as those rules stay: moving them removes them.
	legacyEmpty bool
	empty       bool
}

// EmptySnapshot returns the snapshot of a namespace that holds no rules and routes of ours.
func EmptySnapshot() Snapshot { return Snapshot{empty: true} }

// anyRules reports whether the tables hold a rule.
func anyRules(tables []rules.Table) bool {
	rs := rules.Ruleset{Tables: tables}
	return anyRule(&rs, func(*rules.Rule) bool { return true })
}

// Backends returns nft and legacy, in the order of preference.
func Backends() []Backend { return []Backend{nftBackend{}, legacyBackend{}} }

// InstalledBackends returns the backends that have rules of ours in the namespace. Backends that
// cannot be read are in the error, which may come with a result.
func InstalledBackends(ns *netns.NS) ([]Backend, error) {
	var installed []Backend
	var errs []error
	for _, b := range Backends() {
		rs, err := b.Read(ns)
		switch {
		case err != nil && !IsNotSupported(err):
			errs = append(errs, err)
		case len(rs.Tables) > 0:
			installed = append(installed, b)
		}
	}
	return installed, errors.Join(errs...)
}
