package compat

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/compat/xtables"
	"github.com/sluice-mesh/sluice/nft"
	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/nft/route"
	"github.com/sluice-mesh/sluice/rules"
)

// IsNotPermitted tells whether the error of a backend comes from a lack of privilege.
func IsNotPermitted(err error) bool { return nft.IsNotPermitted(err) }

// IsNotSupported tells whether the error of a backend comes from something that this kernel does not have of an engine.
func IsNotSupported(err error) bool {
	if errors.Is(err, route.ErrNoIPv6) {
		return false // no engine has that
	}
	return nft.IsNotSupported(err) || errors.Is(err, unix.ENOPROTOOPT)
}

// ProbeLegacy asks the kernel which of the things it has that the ruleset needs of iptables-legacy, in a namespace of its own that is
// gone afterwards: its tables, matches and targets, never programs. A family of which the kernel has nothing is one feature. Like
// nft.Probe it needs CAP_SYS_ADMIN and CAP_NET_ADMIN, and keeps the answers; and CAP_SYS_MODULE where nobody has loaded the family's
// module yet.
func ProbeLegacy(rs rules.Ruleset) ([]nft.Support, error) {
	want, err := Translate(rs)
	if err != nil {
		return nil, err
	}
	needs, err := featuresOf(holdingOf(want.Tables))
	if err != nil {
		return nil, err
	}
	probed.Lock()
	defer probed.Unlock()
	if err := probed.ask(needs); err != nil {
		return nil, fmt.Errorf("probe the kernel's iptables-legacy: %w", err)
	}
	var support []nft.Support
	for _, f := range needs {
		s := nft.Support{Feature: described(f)}
		if answer := probed.answers[f]; answer != nil {
			if errors.Is(answer, unix.ENOPROTOOPT) {
				s.Feature = familyDescribed(f.Family)
			}
			s.Err = &nft.UnsupportedError{Feature: s.Feature, Err: answer}
		}
		if !slices.ContainsFunc(support, func(other nft.Support) bool { return other.Feature == s.Feature }) {
			support = append(support, s)
		}
	}
	return support, nil
}

// featuresOf lists what the tables need of the kernel, each once.
func featuresOf(want holding) ([]xtables.Feature, error) {
	var list []xtables.Feature
	seen := map[xtables.Feature]bool{}
	add := func(f xtables.Feature) {
		if !seen[f] && f.Name != "" {
			seen[f] = true
			list = append(list, f)
		}
	}
	for _, t := range want.list() {
		id := xtables.ID{Family: t.Family, Name: t.Name}
		add(xtables.Feature{Family: t.Family, Kind: xtables.KindTable, Name: t.Name})
		p, err := newPart(id, &t)
		if err != nil {
			return nil, err
		}
		for _, c := range p.chains {
			for i := range c.rules {
				for _, m := range c.rules[i].Matches() {
					add(xtables.Feature{Family: t.Family, Kind: xtables.KindMatch, Name: m.Name, Revision: m.Revision})
				}
				x := c.rules[i].Target()
				add(xtables.Feature{Family: t.Family, Kind: xtables.KindTarget, Name: x.Name, Revision: x.Revision})
			}
		}
	}
	return list, nil
}

// probed keeps the kernel's answers: nil for what it has.
var probed answers

type answers struct {
	sync.Mutex
	answers map[xtables.Feature]error
}

// ask asks the kernel for those of the features for which that has not been done.
func (a *answers) ask(features []xtables.Feature) error {
	if a.answers == nil {
		a.answers = map[xtables.Feature]error{}
	}
	var scratch *netns.NS
	defer func() { _ = scratch.Close() }()
	for _, f := range features {
		if _, known := a.answers[f]; known {
			continue
		}
		if scratch == nil {
			var err error
			if scratch, err = netns.New(); err != nil {
				return err
			}
		}
		err := xtables.Probe(scratch, f)
		if err != nil && !isLacking(err) {
			return fmt.Errorf("%s: %w", f, err)
		}
		a.answers[f] = err
	}
	return nil
}

// isLacking tells the answers that the kernel has not got a thing from others.
func isLacking(err error) bool { return IsNotSupported(err) || errors.Is(err, fs.ErrNotExist) }

// diagnose adds to a refusal what the kernel lacks of iptables-legacy, if it can be found out.
func diagnose(err error, rs rules.Ruleset) error {
	if err == nil || IsNotPermitted(err) || errors.Is(err, xtables.ErrChanged) {
		return err
	}
	support, probeErr := ProbeLegacy(rs)
	if probeErr != nil {
		return err
	}
	for _, s := range support {
		if s.Err != nil {
			err = errors.Join(err, s.Err)
		}
	}
	return err
}
