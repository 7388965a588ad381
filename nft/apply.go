package nft

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/nft/internal/nlmsg"
	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/nft/route"
	"github.com/sluice-mesh/sluice/rules"
)

// Outcome is the effect of a call of Apply.
type Outcome string

// The outcomes.
const (
	Created   Outcome = "created"   // the namespace had no Sluice table
	Unchanged Outcome = "unchanged" // the namespace already had the ruleset: nothing was written
	// Updated: only set elements or routes differed, and they were changed in place.
	Updated  Outcome = "updated"
	Replaced Outcome = "replaced" // the namespace had a different ruleset
)

// A Result describes what Apply did. The zero value means that an error occurred before the rules
// changed.
type Result struct {
	// Outcome may be set even with an error: see [Apply].
	Outcome Outcome
	// Rules and Sets are the numbers of rules and of named sets in the ruleset. Elements is the
	// number of address ranges in these sets. Bytes is the size of the last transaction, 0 if there
	// was none.
	Rules, Sets, Elements, Bytes int
	// Routes is the number of policy rules, routes and addresses that were added or removed.
	Routes int
	// EstablishedPackets is the number of packets that the rules for older connections
	// (rules.Redirect.KeepEstablished) have accepted since the rules were created. Only connections
	// without a conntrack entry at that time are counted: NAT chains count one packet of each, and
	// TPROXY's mangle chain counts each packet until the application has replied. Connections with
	// a conntrack entry are not affected by the rules.
	EstablishedPackets uint64
}

// maxAttempts bounds the attempts to change a ruleset that other processes change at the same time.
const maxAttempts = 20

// Apply replaces the content of the Sluice table in the namespace with the ruleset. A nil namespace
// is the current one. The ruleset must have exactly the table that [rules.Compile] creates.
//
// Apply adds missing routes, changes the rules in one transaction, and then removes unneeded
// routes. Readers and packets observe either the old ruleset or the new one. There is one
// exception: if capture moves from one base chain to another, for example because the mode changes,
// Apply sends three transactions. Between the first and the last, for about 50 ms, packets that
// open TCP connections are dropped. Clients retransmit them after a second.
//
// If Apply returns an error without an outcome, the rules have not changed, and Apply has removed
// the routes that it had added, unless rules or other processes may use them. If Apply returns an
// error with an outcome, the rules were changed but a later transaction or a change of routes
// failed, or the kernel's answer was lost and it is unknown whether the rules were changed. Two
// concurrent calls in one namespace both succeed, and the result is one of the two rulesets.
func Apply(ns *netns.NS, rs rules.Ruleset) (Result, error) {
	p, err := Prepare(rs)
	if err != nil {
		return Result{}, err
	}
	return p.Apply(ns, ApplyOptions{})
}

// An applier executes one call of Apply.
type applier struct {
	conn    *conn
	desired rules.Ruleset
	// creation is [Prepared.creation].
	creation func() (*Transaction, error)
	// snapshot is [ApplyOptions.Since]. It is used once.
	snapshot Snapshot
	// beforeChange is [ApplyOptions.BeforeChange].
	beforeChange func(exclusive bool) error
	result       Result
	// found is the Sluice table that was read last, if it existed.
	found []rules.Table
	// If the answer to the last transaction was lost, unanswered contains its outcome and size, and
	// lost the error.
	unanswered Result
	lost       error
	// gateAdded reports that this call has added the chains of [gate], and rulesReplaced that it
	// has then replaced the rules. Both are also set if the kernel's answer to the transaction was
	// lost. mayHaveReplaced reports that rulesReplaced is set only because of a lost answer.
	gateAdded, rulesReplaced, mayHaveReplaced bool
	// deleted reports that a transaction that deletes objects was sent: closing the socket waits
	// until the kernel has freed them.
	deleted bool
}

// newApplier returns the applier of a call in the namespace of the thread. It ignores a snapshot of
// another namespace.
func newApplier(c *conn, p *Prepared, o ApplyOptions) *applier {
	a := &applier{
		conn: c, desired: p.ruleset, creation: p.creation, snapshot: o.Since,
		beforeChange: o.BeforeChange,
	}
	if len(a.snapshot.found) > 0 {
		if id := (*netns.NS)(nil).ID(); id != a.snapshot.netns || id == (netns.ID{}) {
			a.snapshot = Snapshot{}
		}
	}
	return a
}

// close closes the socket. It does so in the background if closing would wait for the kernel.
func (a *applier) close() {
	if a.deleted {
		go a.conn.close()
		return
	}
	a.conn.close()
}

// run applies the desired rules and routes to the namespace of the thread.
func (a *applier) run() error {
	planned, err := a.plan()
	// Ignore the error of a concurrent change: a.apply plans again below, after this call has taken
	// the lock, which stops other calls of Apply.
	if err != nil && !needsRetry(err) && !errors.Is(err, errBusy) {
		return err
	}
	// Without a change, no lock is needed.
	if err == nil && planned.transaction == nil && route.InSync(a.desired.Routing) {
		a.result.Outcome = Unchanged
		return nil
	}
	release, exclusive := lock(0)
	if !exclusive {
		release()
		release, exclusive = lock(netns.LockTimeout)
		planned = step{} // the ruleset may have changed while waiting
	}
	defer release()
	if a.beforeChange != nil {
		if err := a.beforeChange(exclusive); err != nil {
			return err
		}
	}
	routes, err := route.Ensure(nil, a.desired.Routing)
	if err != nil {
		return err
	}
	if err := a.apply(planned); err != nil {
		// Without the lock keep the routes: they are harmless, and another process may use them.
		// Also keep them if rules may have been changed, for example because the kernel's answer
		// was lost.
		if exclusive && a.resultAfter(err).Outcome == "" {
			err = errors.Join(err, routes.Rollback(a.found))
		}
		return err
	}
	return a.finish(routes, exclusive)
}

// apply executes the planned step, or a new one if the planned step has no transaction. It plans
// again after an intermediate transaction, after a concurrent change by another process, and after
// a lost answer of the kernel.
func (a *applier) apply(planned step) error {
	var err, conflict error // conflict is the last error of a concurrent change or a lost answer
	for range maxAttempts {
		planned, err = a.replan(planned)
		switch {
		case err != nil || planned.transaction == nil:
			// There is no transaction to send.
		case planned.intermediate != nil:
			if err = a.commitIntermediate(planned); err == nil {
				planned = step{}
				continue
			}
		default:
			a.beforeCommit(planned)
			err = a.afterCommit(planned, a.conn.commit(planned.transaction))
		}
		if !needsRetry(err) {
			return a.removeGateAfterFailure(a.withLostAnswer(err))
		}
		planned, conflict = step{}, err
	}
	failure := fmt.Errorf("gave up after %d attempts because of concurrent changes by other "+
		"processes", maxAttempts)
	if conflict != nil {
		failure = fmt.Errorf("%w: %w", failure, conflict)
	}
	return a.removeGateAfterFailure(a.withLostAnswer(failure))
}

// replan returns the step if it has a transaction, otherwise a new step. If the new step has no
// transaction, the namespace has the ruleset.
func (a *applier) replan(s step) (step, error) {
	if s.transaction != nil {
		return s, nil
	}
	s, err := a.plan()
	if err == nil && s.transaction == nil {
		// The outcome is Unchanged, unless an earlier attempt changed the rules and its answer was
		// lost.
		a.result.Outcome, a.result.Bytes = cmp.Or(a.unanswered.Outcome, Unchanged), a.unanswered.Bytes
	}
	return s, err
}

// beforeCommit records that the transaction of the step is about to be sent.
func (a *applier) beforeCommit(s step) {
	a.deleted = a.deleted || s.transaction.deletes
	// If the answer to an earlier transaction was lost, this step was planned from a later read.
	// Because a change was still needed, the kernel did not execute the earlier transaction, or
	// another process has replaced its result.
	a.unanswered, a.lost = Result{}, nil
}

// afterCommit records the result of the step's transaction. err is the error of the commit. If the
// kernel lacks features that the transaction needs, the returned error names them.
func (a *applier) afterCommit(s step, err error) error {
	size := len(s.transaction.buf)
	if err == nil {
		a.result.Outcome, a.result.Bytes = s.outcome, size
		return nil
	}
	if lost := (*nlmsg.LostError)(nil); errors.As(err, &lost) {
		a.unanswered, a.lost = Result{Outcome: s.outcome, Bytes: size}, err
	}
	return diagnose(err, &a.desired)
}

// withLostAnswer adds to an error that the rules may have changed, if the answer to the last
// transaction was lost.
func (a *applier) withLostAnswer(err error) error {
	if err == nil || a.lost == nil || errors.Is(err, a.lost) {
		return err
	}
	return errors.Join(fmt.Errorf("the rules may have changed: %w", a.lost), err)
}

// finish removes unneeded routes, and counts the changes of routes.
func (a *applier) finish(routes route.Change, exclusive bool) error {
	changed, err := routes.Finish(a.result.Outcome != Created, exclusive)
	a.result.Routes = changed
	if a.result.Outcome == Unchanged && changed > 0 {
		a.result.Outcome = Updated
	}
	return err
}

// resultAfter returns the result for the caller of Apply, after run has returned err.
func (a *applier) resultAfter(err error) Result {
	if err == nil {
		return a.result
	}
	// If the answer was lost and the tables could not be read again, it is unknown whether the
	// transaction was executed.
	a.result.Outcome = cmp.Or(a.result.Outcome, a.unanswered.Outcome)
	if a.result.Outcome == "" {
		return Result{}
	}
	return a.result
}

// growStack grows the stack of a new goroutine to the size that Apply needs. Otherwise the runtime
// would grow and copy the stack several times, which takes 5 % of the time of an Apply without
// changes. touch must be false, so that the array is reserved but not cleared.
//
//go:noinline
func growStack(touch bool) byte {
	const depth = 12 << 10
	if !touch {
		return 0
	}
	var space [depth]byte
	return space[os.Getpid()%depth]
}

// lock prevents other processes that call Apply from removing routes that this call has added.
// Rules need no lock, because transactions are atomic. Therefore Apply continues without the lock
// after a timeout, and if the lock cannot be created. In these cases acquired is false.
func lock(wait time.Duration) (release func(), acquired bool) {
	release, acquired, err := (*netns.NS)(nil).Lock(wait)
	if err != nil {
		return func() {}, false
	}
	return release, acquired
}

// needsRetry reports whether a change must be planned again from a new read of the ruleset, because
// another process has changed the ruleset, or because the kernel's answer was lost.
func needsRetry(err error) bool {
	var lost *nlmsg.LostError
	var kernelErr *KernelError
	switch {
	case errors.Is(err, errTableDeleted) || errors.As(err, &lost):
		return true
	case !errors.As(err, &kernelErr):
		return false
	case kernelErr.Errno == unix.EEXIST:
		return kernelErr.msg == unix.NFT_MSG_NEWTABLE // another process has created the table
	}
	return kernelErr.Errno == unix.ERESTART // the generation has changed
}

// resetResult clears the result, and sets the numbers of objects in the ruleset.
func (a *applier) resetResult() {
	a.result = Result{}
	for i := range a.desired.Tables {
		t := &a.desired.Tables[i]
		a.result.Rules += t.CountRules()
		for _, m := range t.Sets() {
			a.result.Sets++
			a.result.Elements += len(m.Ranges)
		}
	}
}

// establishedPackets returns the number of packets that rules for older connections have accepted.
func establishedPackets(t *rules.Table) uint64 {
	var n uint64
	for _, c := range t.Chains {
		for i := range c.Rules {
			if r := &c.Rules[i]; r.KeepsEstablished() {
				n += r.Hits.Packets
			}
		}
	}
	return n
}

// Prepared is a ruleset that is encoded once and applied to many namespaces, such as the namespaces
// of all pods with equal parameters. It is safe for concurrent use.
type Prepared struct {
	ruleset rules.Ruleset
	// creation returns the transaction of a first installation. The first call encodes it.
	creation func() (*Transaction, error)
}

// Prepare returns the ruleset for [Prepared.Apply]. The ruleset must have exactly the table that
// [rules.Compile] creates, and must not be changed afterwards.
func Prepare(rs rules.Ruleset) (*Prepared, error) {
	if len(rs.Tables) != 1 || rs.Tables[0].Family != tableFamily ||
		rs.Tables[0].Name != rules.TableName {
		return nil, fmt.Errorf("the ruleset must have exactly one table, %s %s",
			tableFamily, rules.TableName)
	}
	return &Prepared{rs, sync.OnceValues(func() (*Transaction, error) {
		return Encode(rs)
	})}, nil
}

// ApplyOptions configure [Prepared.Apply]. The zero value has the behavior of [Apply].
type ApplyOptions struct {
	// Since is an earlier snapshot of the namespace. Apply may plan the transaction from it instead
	// of reading the rules. If the rules have changed since then, the kernel rejects the
	// transaction and Apply reads the rules. [Result.EstablishedPackets] may be from the snapshot.
	// A snapshot of another namespace is ignored. Never pass a snapshot of a destroyed namespace,
	// because the kernel may have reused its inode number.
	Since Snapshot
	// BeforeChange, if not nil, is called in the namespace before the first change. It is not
	// called if the namespace already has the ruleset and its routes. No change follows the call if
	// another process has made the same change in the meantime. exclusive reports whether Apply has
	// acquired the lock of the namespace. If BeforeChange returns an error, Apply returns the error
	// and changes nothing.
	BeforeChange func(exclusive bool) error
}

// Apply is like [Apply] with the prepared ruleset.
func (p *Prepared) Apply(ns *netns.NS, o ApplyOptions) (result Result, err error) {
	if ns != nil {
		err = ns.DoNamed(func() (err error) {
			result, err = p.Apply(nil, o)
			return err
		})
		return result, err
	}
	growStack(false)
	c, err := dial()
	if err != nil {
		return Result{}, err
	}
	a := newApplier(c, p, o)
	defer a.close()
	err = a.run()
	return a.resultAfter(err), err
}
