package compat

import (
	"cmp"
	"encoding/binary"
	"errors"
	"io/fs"
	"slices"

	"github.com/sluice-mesh/sluice/compat/xtables"
	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/nft/trace"
	"github.com/sluice-mesh/sluice/nft/xt"
	"github.com/sluice-mesh/sluice/rules"
)

// Marks represents the rules of [MarkTraces]. Close removes them.
type Marks struct {
	ns     *netns.NS
	unlock func()
}

// MarkTraces marks packets for tracing with the target TRACE of iptables-legacy. It is for kernels
// without nf_tables, where [trace.Open] does not work. The rules are in the chain [trace.Chain] of
// the table raw. Packets traverse raw before conntrack. New connections are therefore recognized
// only for TCP, by the flag SYN. Of the other protocols, all packets are marked or, if the filter
// has a port, only UDP packets. A family without iptables-legacy is skipped, unless no other family
// is marked. If the process is killed, the rules remain until [UnmarkTraces] removes them.
func MarkTraces(ns *netns.NS, o trace.Options) (*Marks, error) {
	unlock, err := trace.LockSession(ns)
	if err != nil {
		return nil, err
	}
	m := &Marks{ns, unlock}
	err = ns.DoNamed(func() error {
		return markFamilies(o.Filter, func(f rules.Family) error {
			marks, err := traceMarks(f, o)
			if err != nil {
				return err
			}
			return replaceMarks(f, marks)
		})
	})
	if err != nil {
		return nil, errors.Join(err, m.Close())
	}
	return m, nil
}

// markFamilies calls mark for the families of the packets that the filter selects. It ignores the
// error of a family that the kernel does not support if it marks the other one.
func markFamilies(filter trace.Filter, mark func(rules.Family) error) (unsupported error) {
	a := filter.To.Addr()
	if !a.IsValid() {
		a = filter.From.Addr()
	}
	marked := false
	for _, f := range families {
		if a.IsValid() && rules.FamilyOf(a) != f {
			continue
		}
		switch err := mark(f); {
		case err == nil:
			marked = true
		case !IsNotSupported(err):
			return err
		default:
			unsupported = err
		}
	}
	if marked {
		return nil
	}
	return unsupported
}

// Close removes the rules.
func (m *Marks) Close() error {
	defer m.unlock()
	_, err := removeMarks(m.ns)
	return err
}

// UnmarkTraces removes the rules of a killed process, and reports whether there were any. It keeps
// the rules of a running process, and creates no table.
func UnmarkTraces(ns *netns.NS) (removed bool, err error) {
	unlock, err := trace.Lock(ns)
	switch {
	case errors.Is(err, trace.ErrBusy):
		return false, nil
	case err != nil:
		return false, err
	}
	defer unlock()
	return removeMarks(ns)
}

func removeMarks(ns *netns.NS) (removed bool, err error) {
	err = ns.DoNamed(func() error {
		for _, f := range families {
			t, err := xtables.Read(nil, f, "raw")
			if errors.Is(err, fs.ErrNotExist) || err == nil && t.Chain(trace.Chain) == nil {
				continue
			}
			if err == nil {
				err = replaceMarks(f, encodedRules{})
			}
			if err != nil {
				return err
			}
			removed = true
		}
		return nil
	})
	return removed, err
}

// replaceMarks replaces the rules that mark packets in a table raw.
func replaceMarks(f rules.Family, marks encodedRules) error {
	return changeTable(xtables.ID{Family: f, Name: "raw"}, func(t *xtables.Table) error {
		for i := range t.Chains {
			t.Chains[i].Rules = slices.DeleteFunc(t.Chains[i].Rules, func(r xtables.Rule) bool {
				chain, _ := r.Jump()
				return chain == trace.Chain
			})
		}
		t.DeleteChains(func(name string) bool { return name == trace.Chain })
		return marks.insertInto(t)
	})
}

// traceMarks returns the chain that marks packets, and the jumps to it.
func traceMarks(f rules.Family, o trace.Options) (encodedRules, error) {
	chain, err := traceChain(f, o)
	if err != nil {
		return encodedRules{}, err
	}
	jumps, err := traceJumps(f, o.Filter)
	return encodedRules{chains: []encodedChain{chain}, jumps: jumps}, err
}

// traceChain returns the chain that marks the packets that the filter selects.
func traceChain(f rules.Family, o trace.Options) (encodedChain, error) {
	others := []rules.Match{rules.MatchProtocol{
		Not: true, Protocols: []rules.Protocol{rules.TCP},
	}}
	if o.Filter.Port != 0 || o.Filter.To.Port() != 0 || o.Filter.From.Port() != 0 {
		others = []rules.Match{rules.MatchProtocol{Protocols: []rules.Protocol{rules.UDP}}}
	}
	chain := encodedChain{name: trace.Chain}
	for _, protocol := range [][]rules.Match{trace.FirstSegment(), others} {
		r := rules.Rule{Matches: slices.Concat(protocol, o.Filter.Matches())}
		rules.SortMatches(r.Matches)
		withoutTarget, err := encodeRule(f, &r)
		if err != nil {
			return chain, err
		}
		rule, err := xtables.NewRule(f, withoutTarget.Header(),
			append(withoutTarget.Matches(), limitMatch(cmp.Or(o.Rate, trace.DefaultRate))),
			xtables.Target{Extension: xt.Extension{Name: "TRACE"}})
		if err != nil {
			return chain, err
		}
		chain.rules = append(chain.rules, rule)
	}
	return chain, nil
}

// traceJumps returns the jumps to the chain that marks packets, at the hooks of the filter.
func traceJumps(f rules.Family, filter trace.Filter) ([]jumpRule, error) {
	var jumps []jumpRule
	for _, position := range captureHooks {
		if !filter.HasHook(position.hook) {
			continue
		}
		jump := rules.Rule{Actions: []rules.Action{rules.Jump{Chain: trace.Chain}}}
		if position.hook == rules.Prerouting {
			jump.Matches = []rules.Match{trace.NotFromLoopback()}
		}
		rule, err := encodeRule(f, &jump)
		if err != nil {
			return nil, err
		}
		jumps = append(jumps, jumpRule{chain: position.chain, rule: rule})
	}
	return jumps, nil
}

// limitMatch returns a match that limits a rule to about rate packets per second, but at most
// scale, with a burst of rate packets.
func limitMatch(rate uint32) xt.Extension {
	const scale = 10000      // XT_LIMIT_SCALE, linux/netfilter/xt_limit.h
	data := make([]byte, 40) // struct xt_rateinfo; the kernel sets the fields after avg and burst
	binary.NativeEndian.PutUint32(data, max(scale/rate, 1))
	binary.NativeEndian.PutUint32(data[4:], rate)
	return xt.Extension{Name: "limit", Data: data}
}
