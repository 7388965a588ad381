package save

import "github.com/sluice-mesh/sluice/rules"

func (r *moduleReader) matchMark() []rules.Match { return r.markOption(false) }

func (r *moduleReader) matchConnmark() []rules.Match { return r.markOption(true) }

func (r *moduleReader) markOption(conntrack bool) []rules.Match {
	o := r.required("--mark")
	if o == nil {
		return nil
	}
	m := rules.MatchMark{Conntrack: conntrack, Not: o.not}
	m.Value, m.Mask = r.mark(o.values[0])
	return []rules.Match{m}
}

// owner parses the ids of a socket. In the kernel (owner_mt in net/netfilter/xt_owner.c) a packet
// without a socket matches if all conditions are negated. A condition that no socket exists cannot
// be combined with others.
func (r *moduleReader) owner() []rules.Match {
	exists := r.option("--socket-exists")
	var list []rules.Match
	positive := false
	for _, o := range r.options {
		switch o.name {
		case "--suppl-groups":
			r.unknown = true
		case "--uid-owner", "--gid-owner":
			socketless := o.not && exists == nil
			m := rules.MatchOwner{
				Group: o.name == "--gid-owner", Not: o.not, Socketless: socketless,
				IDs: r.ids(o.values[0]),
			}
			list = append(list, m)
			positive = positive || !o.not
		}
	}
	switch {
	case len(r.options) == 0:
		r.fail(r.flag, "one of --uid-owner, --gid-owner and --socket-exists after it")
	case exists == nil:
	case exists.not:
		r.unknown = r.unknown || positive
		return []rules.Match{rules.MatchOwner{Not: true, Socketless: true, IDs: allIDs()}}
	case len(list) == 0:
		return []rules.Match{rules.MatchOwner{IDs: allIDs()}}
	}
	return list
}

// cgroup parses a path of a cgroup of version 2. A class of version 1 is unknown.
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

// allIDs returns the ids of all sockets.
func allIDs() []rules.IDRange { return []rules.IDRange{{First: 0, Last: 1<<32 - 1}} }

// iprange parses ranges of addresses.
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
