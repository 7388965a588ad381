package compat

import (
	"errors"
	"slices"

	"github.com/sluice-mesh/sluice/compat/xtables"
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
	BackendAuto   BackendName = "auto"   // nft if the kernel supports it, or else legacy
)

// String returns the display name: "iptables-legacy" instead of "legacy".
func (n BackendName) String() string {
	if n == BackendLegacy {
		return "iptables-legacy"
	}
	return string(n)
}

// A Backend installs rulesets in network namespaces. Callers get one from [Choose],
// [InstalledBackends] or [Backends]. A nil namespace means the namespace of the calling thread.
//
// Apply, Check and Plan take a [Snapshot] from an earlier call for the same namespace and ruleset.
// With the nft backend, a Check after a Check that found no difference reads the rules only if they
// have changed since, and so does an Apply after a Check that found differences. Plan ignores any
// snapshot but [EmptySnapshot]. With the zero Snapshot, the methods read all rules of Sluice.
//
// All methods are safe for concurrent use, also by several processes in one namespace. Classify
// their errors with [IsNotPermitted] and [IsNotSupported].
type Backend interface {
	// Name returns the backend's name. It is auto if Apply selects the backend at run time.
	Name() BackendName
	// Apply programs a ruleset that rules.Compile or another compile function of package rules
	// returned. It adds missing routes, changes the rules, removes Sluice's rules from the other
	// backend, and removes routes that are no longer needed. It writes nothing if the namespace
	// already matches. A connection that both the old and the new rules capture never bypasses the
	// proxy during the change.
	//
	// If Result.Outcome is empty, an error means that the namespace is unchanged. Otherwise an
	// error means that the new rules are or may be in place; it describes what is incomplete, or
	// what could not be rolled back.
	Apply(ns *netns.NS, rs rules.Ruleset, prev Snapshot) (Result, error)
	// Check compares Sluice's rules and routes in the namespace with the state that Apply
	// establishes. Rules of Sluice in the other backend are differences. Foreign policy rules at
	// Sluice's priority and foreign routes in Sluice's routing table (rules.Routing.Others) are
	// differences too, although Apply does not remove them. If only the other backend cannot be
	// read, Check returns the error together with the differences in this backend.
	Check(ns *netns.NS, rs rules.Ruleset, prev Snapshot) (Comparison, error)
	// Read returns Sluice's rules, as the backend represents them, and Sluice's routes. If the
	// backend holds no rules of Sluice, the result has no tables.
	Read(ns *netns.NS) (rules.Ruleset, error)
	// Remove deletes Sluice's rules. It also deletes Sluice's routes, unless the other backend has
	// rules of Sluice or cannot be read. It reports whether it deleted anything, and returns no
	// error if the kernel does not support the backend.
	Remove(ns *netns.NS) (bool, error)
	// Plan returns what Apply would do with the rules, without changing anything. It ignores
	// routes. With [EmptySnapshot] it does not read the namespace, and assumes that the namespace
	// holds no rules of Sluice.
	Plan(ns *netns.NS, rs rules.Ruleset, prev Snapshot) (Plan, error)
}

// A Result describes what [Backend.Apply] did. With the legacy backend, Sets, Elements and Bytes
// are 0, and Rules counts the rules of both families.
type Result struct {
	nft.Result
	// Backend is the backend that now holds the rules.
	Backend BackendName
	// Moved is set if the other backend held rules of Sluice. The outcome is then "replaced". Apply
	// removed the rules of the other backend, unless the error says otherwise.
	Moved       bool
	legacyEmpty bool // see Snapshot.legacyEmpty
}

// Snapshot returns a snapshot for a Check after Apply. It does not contain the rules: Check reads
// them from the kernel.
func (r Result) Snapshot() Snapshot {
	return Snapshot{backend: r.Backend, legacyEmpty: r.legacyEmpty}
}

// IsLegacyTooLarge reports whether Apply or Check used nft and returned err only because the tables
// of iptables-legacy exceed the limit of package xtables. used is the backend of the result. If err
// joins several errors, all must have this cause. The rules in nf_tables have then been applied or
// compared, but it is unknown whether iptables-legacy has rules of Sluice.
func IsLegacyTooLarge(used BackendName, err error) bool {
	return used == BackendNFT && isOnlyTooLarge(err)
}

// CheckReadable is like [Backend.Check], but a check with nft ignores iptables-legacy if its tables
// are too large to read.
func CheckReadable(
	b Backend, ns *netns.NS, rs rules.Ruleset, prev Snapshot,
) (Comparison, error) {
	found, err := b.Check(ns, rs, prev)
	if IsLegacyTooLarge(found.Backend, err) {
		err = nil
	}
	return found, err
}

// isOnlyTooLarge reports whether err, or each of the errors that it joins, is xtables.ErrTooLarge.
func isOnlyTooLarge(err error) bool {
	var joined interface{ Unwrap() []error }
	if errors.As(err, &joined) {
		return !slices.ContainsFunc(joined.Unwrap(), func(err error) bool { return !isOnlyTooLarge(err) })
	}
	return errors.Is(err, xtables.ErrTooLarge)
}

// A Plan describes the change of rules that [Backend.Apply] would make.
type Plan struct {
	Backend BackendName
	Outcome nft.Outcome
	// Text describes the change. For nft it has one line per netlink message. For legacy it is the
	// input of iptables-restore and ip6tables-restore; a comment before each part names the
	// program. Text is empty if nothing would change.
	Text string
	// Bytes is the size of nft's transaction, or 0 for legacy.
	Bytes int
}

// A Comparison is the result of [Backend.Check].
type Comparison struct {
	// Backend is the backend whose rules were compared.
	Backend BackendName
	// Differences is empty if Check found no difference.
	Differences []rules.Difference
	// HasRules reports whether this backend holds rules of Sluice.
	HasRules bool
	// Packets contains the counters of the rules that have a rules.Role, in an order that depends
	// only on the ruleset and the backend. It is nil if the ruleset has no counters
	// (rules.Redirect.Counters), if there are differences, or if Check did not read the rules
	// because they have not changed since the snapshot.
	Packets []rules.RolePackets
	// Snapshot can be passed to a later Check, or to an Apply that repairs the differences.
	Snapshot Snapshot
}

// A Snapshot contains what an earlier call found in a namespace. The zero value contains nothing.
type Snapshot struct {
	// Generation is the generation ID of the nf_tables ruleset (NFT_MSG_GETGEN), or 0 if unknown.
	Generation uint32
	backend    BackendName
	// inSync is set if Check found no difference at Generation. hasRules is set if the backend held
	// at least one rule of Sluice.
	inSync, hasRules bool
	// lastRead contains the nftables rules and the routes that Check read, if it found differences.
	lastRead nft.Snapshot
	// legacyEmpty is set if iptables-legacy held no rules of Sluice when Apply programmed
	// nf_tables. This stays valid while Sluice's table in nf_tables exists, because the legacy
	// backend deletes that table when it applies.
	legacyEmpty bool
	// empty is set if the namespace holds no rules or routes of Sluice.
	empty bool
}

// EmptySnapshot returns the snapshot of a namespace that holds no rules or routes of Sluice.
func EmptySnapshot() Snapshot { return Snapshot{empty: true} }

// hasRules reports whether the tables hold a rule.
func hasRules(tables []rules.Table) bool {
	rs := rules.Ruleset{Tables: tables}
	for range rs.AllRules() {
		return true
	}
	return false
}

// Backends returns nft and legacy, in the order of preference.
func Backends() []Backend { return []Backend{nftBackend{}, legacyBackend{}} }

// InstalledBackends returns the backends that hold rules of Sluice in the namespace. If it cannot
// read a backend, it returns the error together with the other backends that hold rules.
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
