package compat

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/compat/xtables"
	"github.com/sluice-mesh/sluice/nft/xt"
	"github.com/sluice-mesh/sluice/rules"
)

// encodeRule encodes a rule of one family for xtables. It is the inverse of decodeRule. The rule
// must be expressible in xtables: each match has one value, and there is at most one action in
// addition to rules.Count.
func encodeRule(family rules.Family, r *rules.Rule) (xtables.Rule, error) {
	e := headerEncoder{family: family}
	for _, m := range r.Matches {
		if err := e.addMatch(m); err != nil {
			return xtables.Rule{}, fmt.Errorf("%s: %w", m, err)
		}
	}
	matches, err := xt.EncodeMatches(e.protocol(), e.extensionMatches)
	if err != nil {
		return xtables.Rule{}, err
	}
	if r.Comment != "" {
		// The comment is last, so that the kernel evaluates it only for packets that satisfy all
		// other matches.
		x, err := xt.EncodeComment(r.Comment)
		if err != nil {
			return xtables.Rule{}, err
		}
		matches = append(matches, x)
	}
	target, err := encodeTarget(family, r.Actions)
	if err != nil {
		return xtables.Rule{}, err
	}
	return xtables.NewRule(family, e.header, matches, target)
}

// encodeTarget encodes the action of a rule. It ignores rules.Count.
func encodeTarget(family rules.Family, actions []rules.Action) (xtables.Target, error) {
	var action rules.Action
	for _, a := range actions {
		if _, counts := a.(rules.Count); counts {
			continue
		}
		if action != nil {
			const format = "%s and %s: an xtables rule can have only one target"
			return xtables.Target{}, fmt.Errorf(format, action, a)
		}
		action = a
	}
	switch a := action.(type) {
	case nil:
		return xtables.Target{}, nil
	case rules.Verdict:
		v, known := map[rules.Verdict]xtables.Verdict{
			rules.Accept: xtables.Accept, rules.Drop: xtables.Drop, rules.Return: xtables.Return,
		}[a]
		if !known {
			return xtables.Target{}, fmt.Errorf("%s: xtables has no such verdict", a)
		}
		return xtables.Target{Verdict: v}, nil
	case rules.Jump:
		return xtables.Target{Chain: a.Chain, Goto: a.Goto}, nil
	}
	x, err := xt.EncodeTarget(family, action)
	return xtables.Target{Extension: x}, err
}

// headerEncoder collects the header of a rule, and the matches that need extensions.
type headerEncoder struct {
	family           rules.Family
	header           xtables.Header
	hasAddr          [2]bool // by rules.Side
	extensionMatches []rules.Match
}

var errSingleValue = errors.New("an xtables rule can compare it only once, with one value")

// addMatch adds the match to the header, or to the matches that need an extension.
func (e *headerEncoder) addMatch(m rules.Match) error {
	switch m := m.(type) {
	case rules.MatchInterface:
		return e.addInterface(m)
	case rules.MatchAddr:
		return e.addAddress(m)
	case rules.MatchProtocol:
		if len(m.Protocols) != 1 || e.header.Protocol != 0 {
			return errSingleValue
		}
		if m.Protocols[0] == 0 {
			return errors.New("in an xtables rule the protocol 0 means any protocol")
		}
		e.header.Protocol = uint16(m.Protocols[0])
		e.setInvert(m.Not, xtables.InvertProtocol)
		if e.family == rules.IPv6 {
			e.header.Flags |= xtables.FlagProtocol6
		}
		return nil
	}
	e.extensionMatches = append(e.extensionMatches, m)
	return nil
}

// protocol returns the protocol that the rule requires, or 0 if it does not require a protocol.
func (e *headerEncoder) protocol() rules.Protocol {
	if e.header.Invert&xtables.InvertProtocol != 0 {
		return 0
	}
	return rules.Protocol(e.header.Protocol)
}

// setInvert sets the inversion flag of a negated match.
func (e *headerEncoder) setInvert(negated bool, bit uint8) {
	if negated {
		e.header.Invert |= bit
	}
}

func (e *headerEncoder) addInterface(m rules.MatchInterface) error {
	field, bit := &e.header.In, uint8(xtables.InvertIn)
	if m.Out {
		field, bit = &e.header.Out, xtables.InvertOut
	}
	if len(m.Names) != 1 || *field != (xtables.Interface{}) {
		return errSingleValue
	}
	var err error
	*field, err = xtables.NamedInterface(m.Names[0].Name, m.Names[0].Prefix)
	e.setInvert(m.Not, bit)
	return err
}

// addAddress encodes a prefix in the header. It adds a range that is not a prefix, a prefix of
// length 0, or a second match of the same side, to the matches that need an extension.
func (e *headerEncoder) addAddress(m rules.MatchAddr) error {
	if m.Family() != e.family {
		return fmt.Errorf("the address is not of family %s", e.family)
	}
	isFirst := !e.hasAddr[m.Side]
	e.hasAddr[m.Side] = true
	if len(m.Ranges) != 1 {
		return errSingleValue
	}
	p, isPrefix := m.Ranges[0].Prefix()
	// In the header, the mask of a prefix of length 0 means that there is no match.
	if !isFirst || !isPrefix || p.Bits() == 0 {
		e.extensionMatches = append(e.extensionMatches, m)
		return nil
	}
	field, bit := &e.header.Source, uint8(xtables.InvertSource)
	if m.Side == rules.Destination {
		field, bit = &e.header.Destination, xtables.InvertDestination
	}
	mask, _ := netip.AddrFromSlice(net.CIDRMask(p.Bits(), p.Addr().BitLen()))
	*field = xtables.Address{Addr: p.Addr(), Mask: mask}
	e.setInvert(m.Not, bit)
	return nil
}

// encodeForKernel is like encodeRule, but uses the newest revision of the target that the kernel
// supports. For older revisions iptables-legacy-save prints "[unsupported revision]", although the
// kernel accepts them. If the kernel cannot be probed, encodeForKernel uses the oldest revision,
// which every kernel supports.
func encodeForKernel(family rules.Family, r *rules.Rule) (xtables.Rule, error) {
	encoded, err := encodeRule(family, r)
	if err != nil {
		return encoded, err
	}
	target := encoded.Target()
	if target.Name == "" {
		return encoded, nil
	}
	for _, newer := range xt.Newer(target) {
		if kernelHas(family, newer) {
			return xtables.NewRule(family, encoded.Header(), encoded.Matches(),
				xtables.Target{Extension: newer})
		}
	}
	return encoded, nil
}

// targetSupport caches by feature whether the kernel supports a revision of a target.
var targetSupport sync.Map

// kernelHas reports whether the kernel is known to support a revision of a target. It probes the
// kernel, unless an earlier probe of the revision was conclusive. The probe needs CAP_NET_ADMIN in
// the namespace of the thread, and loads the target's module.
func kernelHas(family rules.Family, x xt.Extension) bool {
	f := xtables.Feature{
		Family: family, Kind: xtables.KindTarget, Name: x.Name, Revision: x.Revision,
	}
	if has, known := targetSupport.Load(f); known {
		return has.(bool)
	}
	err := xtables.Probe(nil, f)
	if err == nil || errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.EPROTONOSUPPORT) {
		targetSupport.Store(f, err == nil)
	}
	return err == nil
}
