package nft

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/nft/internal/nlmsg"
	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/nft/route"
	"github.com/sluice-mesh/sluice/rules"
)

// Outcome says what Apply found and did.
type Outcome string

// The outcomes.
const (
	Created   Outcome = "created"   // there was nothing of ours
	Unchanged Outcome = "unchanged" // exactly this ruleset was there: nothing was written
	Updated   Outcome = "updated"   // only elements of sets or routes differed, and were added and deleted in place
	Replaced  Outcome = "replaced"  // another ruleset was there
)

// A Result describes what Apply did. The zero value is nothing.
type Result struct {
	// Outcome comes with some errors too: see [Apply].
	Outcome Outcome
	// Rules, Sets and Elements count what the ruleset holds; Bytes is the size of the transaction,
	// 0 if there was none.
	Rules, Sets, Elements, Bytes int
	// Routes is how many policy routes and addresses were added or removed.
	Routes int
	// Kept sums the packets that the rules for older connections (rules.Redirect.KeepEstablished)
	// have let pass since they were made. In NAT chains that is one for each connection that
	// conntrack did not know, in TPROXY's mangle chain each packet of such a connection until the
	// application has answered. Connections that conntrack knew before are neither touched nor
	// counted.
	Kept uint64
}

// maxAttempts bounds how often Apply starts anew because another process changed the ruleset
// meanwhile.
const maxAttempts = 20

// Apply makes the ruleset what our table holds in the namespace (nil: the current one). It must
// have one table, the one that [rules.Compile] makes.
//
// Routes are added first and removed last; everything else happens in one transaction. A reader
// finds the old ruleset or the new one, and so does every packet. If Apply returns an error and no
// outcome, nothing has changed. With an error and an outcome the rules are in place, but not all
// that is about their routes, as the error says; or the kernel's answers were lost, so that they
// may be. Two at once in one namespace both succeed, and the result is one of the two rulesets.
func Apply(ns *netns.NS, rs rules.Ruleset) (Result, error) {
	p, err := Prepare(rs)
	if err != nil {
		return Result{}, err
	}
	return p.Apply(ns, ApplyOptions{})
}

// inside runs do in the namespace, which all sockets that it opens then belong to, and names the
// namespace in its error.
func inside(ns *netns.NS, do func() error) error {
	err := ns.Do(do)
	if err != nil && ns != nil {
		return fmt.Errorf("%s: %w", ns, err)
	}
	return err
}

// run makes the namespace of the thread hold the wanted rules and routes.
func (a *applier) run() error {
	planned, err := a.plan()
	if err != nil && !isRace(err) {
		return err
	}
	// Finding that there is nothing to do takes no lock.
	if err == nil && planned.transaction == nil && route.Holds(a.want.Routing) {
		a.result.Outcome = Unchanged
		return nil
	}
	release, exclusive := lock(0)
	if !exclusive {
		release()
		release, exclusive = lock(patience)
		planned = step{} // the ruleset may have changed meanwhile
	}
	defer release()
	if a.beforeChange != nil {
		if err := a.beforeChange(exclusive); err != nil {
			return err
		}
	}
	routes, err := route.Ensure(nil, a.want.Routing)
	if err != nil {
		return err
	}
	if err := a.apply(planned); err != nil {
		// Unused routes do no harm: without the lock they stay.
		if exclusive {
			err = errors.Join(err, routes.Rollback(a.found))
		}
		return err
	}
	return a.finish(routes, exclusive)
}

// apply carries out the step, and plans anew as often as another process comes between.
func (a *applier) apply(planned step) error {
	var err error
	for range maxAttempts {
		if planned, err = a.replan(planned); err == nil && planned.transaction != nil {
			a.begin(planned)
			err = a.end(planned, a.conn.commit(planned.transaction))
		}
		if !isRace(err) {
			return err
		}
		planned = step{}
	}
	return fmt.Errorf("given up after %d attempts, each overtaken by another process: %w", maxAttempts, err)
}

// replan returns the step, or a new one where it has no transaction: without one in the new step
// either, nothing is left to do.
func (a *applier) replan(s step) (step, error) {
	if s.transaction != nil {
		return s, nil
	}
	s, err := a.plan()
	if err == nil && s.transaction == nil {
		// Unchanged, unless an earlier attempt made the change and its answer was lost.
		a.result.Outcome, a.result.Bytes = cmp.Or(a.sent.Outcome, Unchanged), a.sent.Bytes
	}
	return s, err
}

// begin notes that the transaction of the step is about to be sent.
func (a *applier) begin(s step) {
	a.deleted = a.deleted || s.transaction.deletes
	a.sent = Result{} // an earlier attempt was not carried out, or another process has replaced it
}

// end notes what the kernel answered to the transaction of the step, and explains a refusal.
func (a *applier) end(s step, err error) error {
	size := len(s.transaction.buf)
	if err == nil {
		a.result.Outcome, a.result.Bytes = s.outcome, size
		return nil
	}
	if lost := (*nlmsg.LostError)(nil); errors.As(err, &lost) {
		a.sent = Result{Outcome: s.outcome, Bytes: size}
	}
	return diagnose(err)
}

// finish removes the routes that the rules in place do not need, and counts what changed.
func (a *applier) finish(routes route.Change, exclusive bool) error {
	changed, err := routes.Finish(a.result.Outcome != Created, exclusive)
	a.result.Routes = changed
	if a.result.Outcome == Unchanged && changed > 0 {
		a.result.Outcome = Updated
	}
	return err
}

// outcome is the result of a run that has ended with the error, nil if it did not fail.
func (a *applier) outcome(err error) Result {
	if err == nil {
		return a.result
	}
	// Of a transaction whose answer was lost, and that nobody could look for, it is not known
	// whether it took place.
	a.result.Outcome = cmp.Or(a.result.Outcome, a.sent.Outcome)
	if a.result.Outcome == "" {
		return Result{}
	}
	return a.result
}

// deepen gives the goroutine, which is a new one, a stack that suffices for the rest. To let it
// grow by and by, and be copied each time with more calls on it, takes a twentieth of the time in
// which an unchanged ruleset is found to be so. The variable is not touched, which would clear what
// is only reserved.
//
//go:noinline
func deepen(touch bool) byte {
	const depth = 12 << 10
	if !touch {
		return 0
	}
	var space [depth]byte
	return space[os.Getpid()%depth]
}

// patience is how long an applier waits for another, who needs a millisecond.
const patience = 2 * time.Second

// lock keeps other appliers of the namespace from taking away the routes that this one has just
// added. A transaction needs no lock, so that a holder who does not let go only delays, and a
// system that allows no lock does no harm; taken is false then.
func lock(wait time.Duration) (release func(), taken bool) {
	release, taken, err := (*netns.NS)(nil).Lock(wait)
	if err != nil {
		return func() {}, false
	}
	return release, taken
}

// applier is one call of Apply.
type applier struct {
	conn     *conn
	want     rules.Ruleset
	creation func() (*Transaction, error)
	// last is what was read before this call, until it has been used.
	last Reading
	// beforeChange is [ApplyOptions.BeforeChange].
	beforeChange func(exclusive bool) error
	result       Result
	// found is our table at the last look, if there was one.
	found []rules.Table
	// sent has outcome and size of a transaction of which the answer was lost.
	sent Result
	// deleted reports that closing the socket will wait for the kernel.
	deleted bool
}

func newApplier(c *conn, p *Prepared, o ApplyOptions) *applier {
	a := &applier{conn: c, want: p.ruleset, creation: p.creation, last: o.Since, beforeChange: o.BeforeChange}
	if len(a.last.found) > 0 {
		if id := (*netns.NS)(nil).ID(); id != a.last.in || id == (netns.ID{}) {
			a.last = Reading{}
		}
	}
	return a
}

// hangUp closes the socket, in the background where that takes long.
func (a *applier) hangUp() {
	if a.deleted {
		go a.conn.close()
		return
	}
	a.conn.close()
}

// isRace reports whether another process came between reading and writing, or the answer was lost:
// both are reasons to read again.
func isRace(err error) bool {
	var lost *nlmsg.LostError
	var refused *KernelError
	switch {
	case errors.Is(err, errVanished) || errors.As(err, &lost):
		return true
	case !errors.As(err, &refused):
		return false
	case refused.Errno == unix.EEXIST:
		return refused.msg == unix.NFT_MSG_NEWTABLE // somebody else's first installation
	}
	return refused.Errno == unix.ERESTART // the generation is another
}

// count fills in what the ruleset holds.
func (a *applier) count() {
	a.result = Result{}
	for i := range a.want.Tables {
		t := &a.want.Tables[i]
		for j := range t.Chains {
			a.result.Rules += len(t.Chains[j].Rules)
		}
		for _, m := range t.Sets() {
			a.result.Sets++
			a.result.Elements += len(m.Ranges)
		}
	}
}

// kept sums the counters of the rules that let older connections pass: no others of ours count.
func kept(t *rules.Table) uint64 {
	var n uint64
	for _, c := range t.Chains {
		for _, r := range c.Rules {
			n += r.Hits.Packets
		}
	}
	return n
}

// Remove deletes our table and then our routes, and reports whether there was anything of them.
func Remove(ns *netns.NS) (bool, error) {
	var removed bool
	err := inside(ns, func() (err error) {
		removed, err = remove()
		return err
	})
	return removed, err
}

// remove is Remove in the namespace of the thread.
func remove() (bool, error) {
	release, _ := lock(patience)
	defer release()
	c, err := dial()
	if err != nil {
		return false, err
	}
	defer c.close()
	ours, err := c.findOurs()
	if err != nil {
		return false, err
	}
	if ours != nil {
		if err := c.deleteTables(ours.Table); err != nil && !errors.Is(err, unix.ENOENT) {
			return false, err
		}
	}
	removed, err := route.PruneAfter(ours != nil)
	return ours != nil || removed > 0, err
}

// deleteTables deletes whole tables in one transaction.
func (c *conn) deleteTables(tables ...rules.Table) error {
	t, err := encode(rules.Ruleset{}, tables, 0)
	if err != nil {
		return err
	}
	return c.commit(t)
}
