package nft

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

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
	// Rules, Sets and Elements count what the ruleset holds; Bytes is the size of the transaction, 0 if there was none.
	Rules, Sets, Elements, Bytes int
	// Routes is how many policy routes and addresses were added or removed.
	Routes int
	// Kept sums the packets that the rules for older connections (rules.Redirect.KeepEstablished) have let pass since they were made.
	// In NAT chains that is one for each connection that conntrack did not know, in TPROXY's mangle chain each packet of such a
	// connection until the application has answered. Connections that conntrack knew before are neither touched nor counted.
	Kept uint64
}

// maxAttempts bounds how often Apply starts anew because another process changed the ruleset meanwhile.
const maxAttempts = 20

// Apply makes the ruleset what our table holds in the namespace (nil: the current one). It must have one table, the one that
// [rules.Compile] makes.
//
// Routes are added first and removed last, all else happens in one transaction: whoever looks finds the old ruleset or the new
// one, and so does every packet. If Apply returns an error and no outcome, nothing has changed. With an error and an outcome the rules
// are in place, but not all that is about their routes, as the error says; or the kernel's answers were lost, so that they may be.
// Two at once in one namespace both succeed, and the result is one of the two rulesets.
func Apply(ns *netns.NS, rs rules.Ruleset) (Result, error) {
	p, err := Prepare(rs)
	if err != nil {
		return Result{}, err
	}
	return p.Apply(ns)
}

// ApplyAfter is [Apply] for those who have just read what is there: while it is so, nothing is read again. When anybody has changed a rule
// since, the kernel refuses the transaction, and all is read. So it is where the last reading was of another namespace; that of a
// namespace which has ended since, whose number may be another's, must not be given. [Result.Kept] is as of the last reading.
func ApplyAfter(ns *netns.NS, rs rules.Ruleset, last Reading) (Result, error) {
	p, err := Prepare(rs)
	if err != nil {
		return Result{}, err
	}
	if len(last.found) > 0 {
		if id := ns.ID(); id != last.in || id == (netns.ID{}) {
			last = Reading{}
		}
	}
	return p.applyAfter(ns, last)
}

// inside runs do in the namespace, which all sockets that it opens then belong to, and names the namespace in its error.
func inside(ns *netns.NS, do func() error) error {
	err := ns.Do(do)
	if err != nil && ns != nil {
		return fmt.Errorf("%s: %w", ns, err)
	}
	return err
}

// apply is ApplyAfter in the namespace of the thread.
func apply(p *Prepared, last Reading) (Result, error) {
	deepen(false)
	c, err := dial()
	if err != nil {
		return Result{}, err
	}
	a := newApplier(c, p)
	a.last = last
	defer a.hangUp()
	err = a.run()
	return a.outcome(err), err
}

// run makes the namespace of the thread what is wanted.
func (a *applier) run() error {
	// To find that nothing is to be done takes no lock: see route.Around.
	planned, err := a.plan()
	if err != nil && !isRace(err) {
		return err
	}
	if err == nil && planned.transaction == nil && route.Holds(a.want.Routing) {
		a.result.Outcome = Unchanged
		return nil
	}
	release, taken := lock(0)
	if !taken {
		release()
		release, taken = lock(patience)
		planned = step{} // of what is no more
	}
	defer release()
	return a.change(planned, taken)
}

// outcome is the result of a run that has ended with the error, nil if it did not fail.
func (a *applier) outcome(err error) Result {
	if err == nil {
		return a.result
	}
	// Of a transaction whose answer was lost, and that nobody could look for, it is not known whether it took place.
	a.result.Outcome = cmp.Or(a.result.Outcome, a.sent.Outcome)
	if a.result.Outcome == "" {
		return Result{}
	}
	return a.result
}

// deepen gives the goroutine, which is a new one, a stack that suffices for the rest. To let it grow by and by, and be copied each time
// with more calls on it, takes a twentieth of the time in which an unchanged ruleset is found to be so. The variable is not touched, which
// would clear what is only reserved.
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

// change makes the namespace what is wanted, routes included; exclusive tells that the lock keeps others away.
func (a *applier) change(planned step, exclusive bool) error {
	changed, err := route.Around(a.want.Routing, exclusive, func() (route.Found, error) {
		err := a.apply(planned)
		return route.Found{Any: a.result.Outcome != Created, Stay: a.found}, err
	})
	a.result.Routes = changed
	if a.result.Outcome == Unchanged && changed > 0 {
		a.result.Outcome = Updated
	}
	return err
}

// patience is how long an applier waits for another, who needs a millisecond.
const patience = 2 * time.Second

// lock keeps other appliers of the namespace from taking away the routes that this one has just added. A transaction needs no lock, so
// that a holder who does not let go only delays, and a system that allows no lock does no harm; taken is false then.
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
	last   Reading
	result Result
	// found is our table at the last look, if there was one.
	found []rules.Table
	// sent has outcome and size of a transaction of which the answer was lost.
	sent Result
	// deleted tells that closing the socket will wait for the kernel.
	deleted bool
}

func newApplier(c *conn, p *Prepared) *applier {
	return &applier{conn: c, want: p.ruleset, creation: p.creation}
}

// hangUp closes the socket, in the background where that takes long.
func (a *applier) hangUp() {
	if a.deleted {
		go a.conn.close()
		return
	}
	a.conn.close()
}

// apply carries out what was planned, and plans anew as often as another process comes between.
func (a *applier) apply(planned step) error {
	var err error
	for range maxAttempts {
		if err = a.attempt(planned); err == nil || !isRace(err) {
			return err
		}
		planned = step{}
	}
	return fmt.Errorf("given up after %d attempts, each overtaken by another process: %w", maxAttempts, err)
}

// isRace tells whether another process came between reading and writing, or the answer was lost: both are reasons to read again.
func isRace(err error) bool {
	var lost *unknownOutcomeError
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

// attempt carries out a step. Unless that has a transaction it plans first.
func (a *applier) attempt(s step) error {
	if s.transaction == nil {
		var err error
		if s, err = a.plan(); err != nil {
			return err
		}
	}
	t := s.transaction
	if t == nil {
		// Unless this is what an earlier attempt has sent, of which the answer was lost.
		a.result.Outcome, a.result.Bytes = cmp.Or(a.sent.Outcome, Unchanged), a.sent.Bytes
		return nil
	}
	a.deleted = a.deleted || t.deletes
	a.sent = Result{} // of an earlier attempt: not carried out, or overtaken
	if err := a.conn.commit(t); err != nil {
		if lost := (*unknownOutcomeError)(nil); errors.As(err, &lost) {
			a.sent = Result{Outcome: s.outcome, Bytes: len(t.buf)}
		}
		return diagnose(err)
	}
	a.result.Outcome, a.result.Bytes = s.outcome, len(t.buf)
	return nil
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

// Remove deletes our table and then our routes, and tells whether there was anything of them.
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
