package compat

import (
	"fmt"
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
	want holding
	// result has an outcome as soon as the rules are in place.
	result  Result
	written writer
	// found are the tables of ours that were there, in either engine.
	found []rules.Table
}

// withRoutes applies the rules, and before and after it their routes. Exclusive tells that the lock keeps others away.
func (a *applier) withRoutes(want rules.Routing, exclusive bool) (Result, error) {
	changed, err := route.Around(want, exclusive, func() (route.Found, error) {
		err := a.apply()
		stay := a.found
		if a.result.Moved {
			stay = a.want.list()
		}
		return route.Found{Any: len(a.found) > 0, Stay: stay}, err
	})
	if a.result.Outcome == "" {
		return a.written.left(a.found), err
	}
	a.result.Routes = changed
	if a.result.Outcome == nft.Unchanged && changed > 0 {
		a.result.Outcome = nft.Updated
	}
	return a.result, err
}

// apply makes the tables those wanted, and then removes what nftables has of ours.
func (a *applier) apply() error {
	others, err := nftHeld()
	if err != nil {
		return err
	}
	moves := len(others) > 0
	a.found = others
	target := a.want
	if moves {
		target = gatedMarks(a.want)
	}
	found, err := a.reach(target)
	if err != nil {
		return err
	}
	if !moves {
		a.result = found
		return nil
	}
	if _, err := nft.RemoveRules(nil); err != nil {
		return a.written.undo(fmt.Errorf("remove our rules from nftables: %w", err))
	}
	// Now there is no way back: nftables' rules are gone.
	a.written, a.result = writer{}, found
	a.result.Moved, a.result.Outcome = true, nft.Replaced
	if _, err := a.reach(a.want); err != nil {
		return fmt.Errorf("the rules are in place, but do not let TCP through yet: %w", err)
	}
	a.result.Rules = a.want.count()
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
	ours := inPlace
	for range maxAttempts {
		live, err := readLegacy(ours)
		if err != nil {
			return result, a.written.undo(err)
		}
		// Our rules go before those of others once: with a program that does the same no agreement would be reached.
		ours = oursIn
		list := steps(target, live)
		if result.Outcome == "" {
			result.Outcome = outcomeOf(live, list)
			a.found = append(a.found, live.list()...)
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
