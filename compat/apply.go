package compat

import (
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/sluice-mesh/sluice/nft"
	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/nft/route"
	"github.com/sluice-mesh/sluice/rules"
)

// inside runs do in the namespace, which all sockets that it opens then belong to, and names the namespace in its error.
func inside(ns *netns.NS, do func() error) error {
	err := ns.Do(do)
	if err != nil && ns != nil {
		return fmt.Errorf("%s: %w", ns, err)
	}
	return err
}

// locked keeps other appliers, of either engine, waiting while do runs, in the namespace of the thread. A holder who does not let go only
// delays, and a system that allows no lock does no harm: taken is false then.
func locked(do func(taken bool) error) error {
	const wait = 2 * time.Second
	release, taken, err := (*netns.NS)(nil).Lock(wait)
	if err != nil {
		return do(false)
	}
	defer release()
	return do(taken)
}

// applier is one call of the legacy backend's Apply, in the namespace of the thread.
type applier struct {
	want    holding
	result  Result
	written writer
	// had tells that there were rules of ours, in either engine.
	had bool
}

// withRoutes adds the routes, applies the rules, and removes the routes that are no longer needed, as nft.Apply does.
func (a *applier) withRoutes(want rules.Routing, taken bool) (Result, error) {
	routes, err := route.Ensure(nil, want)
	if err != nil {
		return Result{}, err
	}
	if err := a.apply(); err != nil {
		// Without the lock somebody else may need them by now; left over, they do no harm.
		if taken && !a.result.Moved {
			err = errors.Join(err, routes.Undo())
		}
		return a.result, err
	}
	a.result.Routes = routes.Len()
	if routes.Stale() {
		pruned, err := route.Prune(nil, keptRouting(want, a.had))
		if err != nil {
			return Result{}, fmt.Errorf("the rules are in place, but not all old routes are gone: %w", err)
		}
		a.result.Routes += pruned
	}
	if !taken {
		// Another applier, whom no lock kept waiting, may have taken for stale what this one needs.
		if _, err := route.Ensure(nil, want); err != nil {
			return Result{}, fmt.Errorf("the rules are in place, but not their routes: %w", err)
		}
	}
	if a.result.Outcome == nft.Unchanged && a.result.Routes > 0 {
		a.result.Outcome = nft.Updated
	}
	return a.result, nil
}

// keptRouting is what stays when all else of ours is pruned. ::6 may as well be Istio's: it goes only if rules of ours were there, of
// which it was a part.
func keptRouting(want rules.Routing, hadRules bool) rules.Routing {
	if !hadRules {
		want.LoopbackAddrs = []netip.Addr{rules.PassthroughIPv6}
	}
	return want
}

// apply makes the tables those wanted, and then removes what nftables has of ours.
func (a *applier) apply() error {
	moves, err := nftHeld()
	if err != nil {
		return err
	}
	target := a.want
	if moves {
		target = gatedMarks(a.want)
	}
	found, err := a.reach(target)
	if err != nil {
		return err
	}
	a.result = found
	a.had = a.had || moves
	if !moves {
		return nil
	}
	if _, err := nft.RemoveRules(nil); err != nil {
		return a.written.undo(fmt.Errorf("remove our rules from nftables: %w", err))
	}
	// Now there is no way back: nftables' rules are gone.
	a.written, a.result.Moved = writer{}, true
	if _, err := a.reach(a.want); err != nil {
		return fmt.Errorf("the rules are in place, but do not let TCP through yet: %w", err)
	}
	a.result.Outcome, a.result.Rules = nft.Replaced, a.want.count()
	return nil
}

// gatedMarks is the holding with the gate before rules that must not see the marks of nftables' rules.
func gatedMarks(want holding) holding {
	gated := holding{}
	for id, t := range want {
		gated[id] = t
		if savesMarks(t) {
			gated[id] = withGate(id.Family, t)
		}
	}
	return gated
}

// reach writes what differs, until the kernel has the target. Without the lock, or in spite of it, another process may write as well:
// whoever looks last has all of its own.
func (a *applier) reach(target holding) (Result, error) {
	result := Result{Engine: EngineLegacy, Result: nft.Result{Rules: target.count()}}
	for range maxAttempts {
		live, err := readLegacy()
		if err != nil {
			return result, a.written.undo(err)
		}
		list := steps(target, live)
		if result.Outcome == "" {
			result.Outcome = outcomeOf(live, list)
			a.had = a.had || len(live) > 0
		}
		if len(list) == 0 {
			result.Kept = kept(target, live)
			return result, nil
		}
		if err := a.written.do(list); err != nil {
			return result, err
		}
	}
	return result, a.written.undo(fmt.Errorf("given up after %d attempts, each overtaken by another process", maxAttempts))
}

// outcomeOf says what the steps make of what is there.
func outcomeOf(live holding, list []step) nft.Outcome {
	switch {
	case len(list) == 0:
		return nft.Unchanged
	case len(live) == 0:
		return nft.Created
	}
	return nft.Replaced
}
