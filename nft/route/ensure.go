package route

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/rules"
)

// Ensure adds the missing parts of want to the namespace. The Change contains the added objects,
// and reports whether the namespace has other objects of this package, which [Prune] would remove.
// If Ensure fails, it removes the objects that it has added. An object that another process adds
// concurrently counts as present. Ensure may need CAP_NET_ADMIN even if nothing is missing.
//
// When Ensure returns, a socket can be bound to ::6. The kernel delivers packets to ::6 a little
// later, when a worker has added its route to table local (up to 5 ms under load).
//
// If want has an IPv6 object and the namespace has no IPv6, the error wraps [ErrNoIPv6]. If want
// has an IPv6 policy route and lo is down, the error wraps [unix.ENETDOWN]; the kernel accepts the
// other objects while lo is down. Ensure returns an error if the table of a policy route has
// another default route, or if want contains a policy route or an address that this package does
// not own.
func Ensure(ns *netns.NS, want rules.Routing) (Change, error) {
	objects, err := routingObjects(want)
	if err != nil {
		return Change{}, err
	}
	var added []object
	if ns == nil {
		var done bool
		if added, done = ensureFast(want); done {
			return Change{want: want, added: added}, nil
		}
	}
	change := Change{ns: ns, want: want, added: added}
	r, h, err := openForChanges(ns)
	if err != nil {
		return Change{}, errors.Join(err, change.Undo())
	}
	defer r.close()
	defer h.Close()
	for _, o := range objects {
		if slices.Contains(added, o) {
			continue
		}
		switch err := o.add(h, r.conn); {
		case err == nil:
			change.added = append(change.added, o)
		case !errors.Is(err, unix.EEXIST):
			err = fmt.Errorf("add %s: %w", o, explainError(ns, o, err))
			return Change{}, errors.Join(err, change.undo(h))
		}
	}
	var stale []object
	if err = r.readPolicyRules(); err == nil {
		for _, p := range hiddenRules(want.Policies, r.policyRules) {
			if err = p.addBeside(r.conn); err != nil {
				err = fmt.Errorf("add %s: %w", p, explainError(ns, p, err))
				break
			}
			change.added = append(change.added, p)
		}
	}
	if err == nil {
		stale, err = newPruning(want).find(r)
	}
	if err != nil {
		return Change{}, errors.Join(err, change.undo(h))
	}
	change.stale = len(stale) > 0
	return change, nil
}

// hiddenRules returns the wanted policy rules that the namespace lacks because of other rules: the
// kernel returns EEXIST for a rule if an existing rule differs only by additional selectors
// (rule_exists in net/core/fib_rules.c).
func hiddenRules(want []rules.PolicyRoute, found []foundRule) (hidden []policyRule) {
	for _, p := range want {
		isPolicy := func(r foundRule) bool { return r.policy == p }
		isWanted := func(r foundRule) bool { return r.policy == p && r.isPlain }
		if slices.ContainsFunc(found, isPolicy) && !slices.ContainsFunc(found, isWanted) {
			hidden = append(hidden, policyRule(p))
		}
	}
	return hidden
}

// routingObjects returns the objects of the routing, each rule before its route.
func routingObjects(r rules.Routing) ([]object, error) {
	var objects []object
	var errs []error
	for _, p := range r.Policies {
		errs = append(errs, validate(p))
		objects = append(objects, policyRule(p), localRoute{p.Family, p.Table})
	}
	for _, a := range r.LoopbackAddrs {
		if a != rules.PassthroughIPv6() {
			errs = append(errs,
				fmt.Errorf("address %s dev lo: must be %s", a, rules.PassthroughIPv6()))
		}
		objects = append(objects, loopbackAddr(a))
	}
	return objects, errors.Join(errs...)
}

// validate rejects a policy route that would match all packets or none, that would change a table
// of the kernel, or that [Read] and [Prune] would not recognize.
func validate(p rules.PolicyRoute) error {
	var reason string
	switch {
	case p.Family != rules.IPv4 && p.Family != rules.IPv6:
		reason = "the family must be IPv4 or IPv6"
	case p.Priority != rules.PolicyPriority:
		reason = fmt.Sprintf("the priority must be %d", rules.PolicyPriority)
	case p.Mark == 0:
		reason = "the mark must not be 0, which matches every packet"
	case p.Mark&^p.Marked().Mask != 0:
		reason = "the mark must have no bits outside the mask, or no packet would match"
	case p.Mask == ^uint32(0):
		reason = "the mask must not be 0xffffffff; use 0 to compare all bits"
	case p.Table == unix.RT_TABLE_UNSPEC ||
		p.Table >= unix.RT_TABLE_DEFAULT && p.Table <= unix.RT_TABLE_LOCAL:
		reason = fmt.Sprintf("the table must not be 0 or %d to %d, which the kernel reserves",
			unix.RT_TABLE_DEFAULT, unix.RT_TABLE_LOCAL)
	default:
		return nil
	}
	return fmt.Errorf("%s: %s", policyRule(p), reason)
}

// Change contains the objects that a call of [Ensure] added. The zero value is an empty change.
type Change struct {
	ns    *netns.NS
	want  rules.Routing
	added []object // in the order of their addition
	stale bool
}

// Stale reports whether the namespace has unwanted objects of this package.
func (c Change) Stale() bool { return c.stale }

// Empty reports whether nothing was added.
func (c Change) Empty() bool { return len(c.added) == 0 }

// Len returns the number of added rules, routes and addresses.
func (c Change) Len() int { return len(c.added) }

// Undo removes the added objects. An object that is already removed is not an error. The namespace
// must still be open or, if it is nil, Undo must be called in the same namespace as Ensure. If
// another process has called Ensure in the meantime, Undo may remove objects that the other process
// needs.
func (c Change) Undo() error {
	if c.Empty() {
		return nil
	}
	h, err := c.ns.Netlink(unix.NETLINK_ROUTE)
	if err != nil {
		return err
	}
	defer h.Close()
	return c.undo(h)
}

// Except returns the change without the objects of keep, so that Undo keeps them.
func (c Change) Except(keep rules.Routing) Change {
	keptObjects, _ := routingObjects(keep) // an error means an object that Ensure cannot have added
	c.added = slices.DeleteFunc(slices.Clone(c.added), func(o object) bool {
		return slices.Contains(keptObjects, o)
	})
	return c
}

// undo removes the added objects in the reverse order of their addition, even after an error.
func (c Change) undo(h *netlink.Handle) error {
	objects := slices.Clone(c.added)
	slices.Reverse(objects)
	_, err := removeAll(c.ns, h, objects)
	return err
}

// ErrNoIPv6 is wrapped by the error of [Ensure] for IPv6 objects if a sysctl of the namespace
// disables IPv6 or the kernel does not support it. The text of the error names the cause.
var ErrNoIPv6 = errors.New("the namespace has no IPv6")

// disableIPv6 is the sysctl that disables IPv6 on lo. Setting conf/all/disable_ipv6 sets it on each
// interface.
const disableIPv6 = "/proc/sys/net/ipv6/conf/lo/disable_ipv6"

// explainError adds the cause to the kernel's error for the addition of o.
func explainError(ns *netns.NS, o object, err error) error {
	if errors.Is(err, unix.EPERM) {
		return fmt.Errorf(
			"%w; needs CAP_NET_ADMIN in the user namespace that owns the network namespace", err)
	}
	if o.family() != rules.IPv6 {
		return err
	}
	switch {
	// Check the sysctl: security modules return EACCES too.
	case errors.Is(err, unix.EACCES) && isOne(ns, disableIPv6):
		return fmt.Errorf("%w: sysctl net.ipv6.conf.lo.disable_ipv6 is 1: %w", ErrNoIPv6, err)
	// A kernel without IPv6 has no handler for messages of the family (rtnetlink_rcv_msg in
	// net/core/rtnetlink.c, fib_newrule in net/core/fib_rules.c).
	case errors.Is(err, unix.EAFNOSUPPORT), errors.Is(err, unix.EOPNOTSUPP):
		return fmt.Errorf("%w: the kernel does not support it: %w", ErrNoIPv6, err)
	case errors.Is(err, unix.ENETDOWN):
		return fmt.Errorf("lo is down: %w", err)
	}
	return err
}

// isOne reports whether a sysctl of the namespace is readable and 1.
func isOne(ns *netns.NS, path string) bool {
	var text []byte
	err := ns.Do(func() (err error) {
		text, err = os.ReadFile(path)
		return err
	})
	return err == nil && strings.TrimSpace(string(text)) == "1"
}
