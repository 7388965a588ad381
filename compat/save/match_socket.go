package save

import "github.com/sluice-mesh/sluice/rules"

func (r *moduleReader) matchMark() []rules.Match { return r.markOption(false) }

func (r *moduleReader) matchConnmark() []rules.Match { return r.markOption(true) }

// markOption parses the option --mark of the matches mark and connmark.
func (r *moduleReader) markOption(conntrack bool) []rules.Match {
	o := r.requiredOption("--mark")
	if o == nil {
		return nil
	}
	m := rules.MatchMark{Conntrack: conntrack, Not: o.not}
	m.Value, m.Mask = r.mark(o.values[0])
	return []rules.Match{m}
}

// owner parses the match owner. In the kernel (owner_mt in net/netfilter/xt_owner.c) a packet
// without a socket matches if all conditions are negated. The model does not represent a
// combination of "! --socket-exists" with a condition that is not negated.
func (r *moduleReader) owner() []rules.Match {
	exists := r.option("--socket-exists")
	var matches []rules.Match
	hasPositive := false
	for _, o := range r.options {
		switch o.name {
		case "--suppl-groups":
			r.isUnknown = true
		case "--uid-owner", "--gid-owner":
			socketless := o.not && exists == nil
			m := rules.MatchOwner{
				Group: o.name == "--gid-owner", Not: o.not, Socketless: socketless,
				IDs: r.ids(o.values[0]),
			}
			matches = append(matches, m)
			hasPositive = hasPositive || !o.not
		}
	}
	switch {
	case len(r.options) == 0:
		r.fail(r.flag, "one of --uid-owner, --gid-owner and --socket-exists after it")
	case exists == nil:
	case exists.not:
		r.isUnknown = r.isUnknown || hasPositive
		// Exactly the packets without a socket match. Negated conditions hold for them.
		return []rules.Match{rules.MatchOwner{Not: true, Socketless: true, IDs: allIDs()}}
	case len(matches) == 0:
		return []rules.Match{rules.MatchOwner{IDs: allIDs()}}
	}
	return matches
}

// cgroup parses the match cgroup. The model represents the path of a cgroup of version 2, but not a
// class of version 1.
func (r *moduleReader) cgroup() []rules.Match {
	o := r.option("--path")
	if o == nil || o.not || len(r.options) != 1 {
		return r.unknownMatch()
	}
	m := rules.CgroupOf(o.values[0].text)
	if m.Path == "" {
		return r.unknownMatch()
	}
	return []rules.Match{m}
}

// allIDs returns the range of all IDs.
func allIDs() []rules.IDRange { return []rules.IDRange{{First: 0, Last: 1<<32 - 1}} }

// iprange parses the match iprange.
func (r *moduleReader) iprange() []rules.Match {
	var list []rules.Match
	for _, o := range r.options {
		m := rules.MatchAddr{Not: o.not, Ranges: r.addressRange(o.values[0])}
		if o.name == "--dst-range" {
			m.Side = rules.Destination
		}
		list = append(list, m)
	}
	if len(list) == 0 {
		r.fail(r.flag, "--src-range or --dst-range after it")
	}
	return list
}
