package route

import (
	"errors"
	"fmt"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/rules"
)

// Ensure adds to the namespace what it lacks of want, and returns what it added
// and whether there is more of ours, for [Prune]. What another process adds
// meanwhile counts as there. When it fails it takes back what it added. It
// needs CAP_NET_ADMIN, also where all is there already.
//
// ::6 can be bound when Ensure returns. The kernel delivers packets to it a
// little later, when a worker has added the address's route to table local;
// under load that was up to 5 ms.
//
// [ErrNoIPv6] is in the error when IPv6 is wanted and the namespace has none,
// [unix.ENETDOWN] when an IPv6 policy route is wanted while lo is down: the
// kernel takes everything else on a lo that is down. A default route of another
// kind in the table is an error too, as are, before anything is done, policy
// routes and addresses that [Read] and [Prune] would not know for ours.
func Ensure(ns *netns.NS, want rules.Routing) (Change, error) {
	objects, err := objectsOf(want)
	if err != nil {
		return Change{}, err
	}
	var quickly []object
	if ns == nil {
		var done bool
		if quickly, done = ensureQuickly(want); done {
			return Change{want: want, added: quickly}, nil
		}
	}
	h, err := open(ns)
	if err != nil {
		return Change{}, err
	}
	defer h.Close()

	change := Change{ns: ns, want: want, added: quickly}
	for _, o := range objects {
		if slices.Contains(quickly, o) {
			continue
		}
		switch err := o.add(h); {
		case err == nil:
			change.added = append(change.added, o)
		case !errors.Is(err, unix.EEXIST):
			err = fmt.Errorf("add %s: %w", o, explain(ns, o, err))
			return Change{}, errors.Join(err, change.undo(h))
		}
	}
	stale, err := ours(want).find(h)
	if err != nil {
		return Change{}, errors.Join(err, change.undo(h))
	}
	change.stale = len(stale) > 0
	return change, nil
}

// objectsOf lists what routing consists of, each rule before its route.
func objectsOf(r rules.Routing) ([]object, error) {
	var objects []object
	var errs []error
	for _, p := range r.Policies {
		errs = append(errs, check(p))
		objects = append(objects, policyRule(p), localRoute{p.Family, p.Table})
	}
	for _, a := range r.LoopbackAddrs {
		if a != rules.PassthroughIPv6() {
			errs = append(errs, fmt.Errorf("address %s dev lo: not %s", a, rules.PassthroughIPv6()))
		}
		objects = append(objects, loopbackAddr(a))
	}
	return objects, errors.Join(errs...)
}

// check refuses what would take all packets of the namespace, or what would not
// be known for ours later.
func check(p rules.PolicyRoute) error {
	var wrong string
	switch {
	case p.Family != rules.IPv4 && p.Family != rules.IPv6:
		wrong = "the family is neither IPv4 nor IPv6"
	case p.Priority != rules.PolicyPriority:
		wrong = fmt.Sprintf("the priority is not %d", rules.PolicyPriority)
	case p.Mark == 0:
		wrong = "the mark is that of every packet"
	case p.Table == unix.RT_TABLE_UNSPEC || p.Table >= unix.RT_TABLE_DEFAULT && p.Table <= unix.RT_TABLE_LOCAL:
		wrong = "the table is the kernel's own"
	default:
		return nil
	}
	return fmt.Errorf("%s: %s", policyRule(p), wrong)
}

// Change is what one call of [Ensure] added. The zero value is nothing.
type Change struct {
	ns    *netns.NS
	want  rules.Routing
	added []object // in this order
	stale bool
}

// Stale reports whether there is something of ours that was not wanted.
func (c Change) Stale() bool { return c.stale }

// Empty reports whether nothing was added.
func (c Change) Empty() bool { return len(c.added) == 0 }

// Len returns how many rules, routes and addresses were added.
func (c Change) Len() int { return len(c.added) }

// Undo removes what was added, and nothing that was there before; what is gone
// already is no error. The namespace must still be open, or, if it was nil, be
// the calling thread's. Another process whose Ensure has found these things
// there loses them.
func (c Change) Undo() error {
	if c.Empty() {
		return nil
	}
	h, err := open(c.ns)
	if err != nil {
		return err
	}
	defer h.Close()
	return c.undo(h)
}

// Except returns the change without what belongs to keep, for Undo to leave that.
func (c Change) Except(keep rules.Routing) Change {
	kept, _ := objectsOf(keep) // what is not ours cannot have been added
	c.added = slices.DeleteFunc(slices.Clone(c.added), func(o object) bool { return slices.Contains(kept, o) })
	return c
}

func (c Change) undo(h *netlink.Handle) error {
	var errs []error
	for _, o := range slices.Backward(c.added) {
		_, err := remove(h, o)
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// remove removes o, and reports whether it was there.
func remove(h *netlink.Handle, o object) (bool, error) {
	switch err := o.remove(h); {
	case gone(err):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("remove %s: %w", o, err)
	}
	return true, nil
}
