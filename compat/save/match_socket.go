package save

import (
	"fmt"
	"slices"
	"strings"

	"github.com/sluice-mesh/sluice/nft/xt"
	"github.com/sluice-mesh/sluice/rules"
)

// matchOwner parses the match owner. In the kernel (owner_mt in net/netfilter/xt_owner.c) a packet
// without a socket matches if all conditions are negated. The model does not represent the
// combination of "! --socket-exists" with a condition that is not negated.
func (r *moduleReader) matchOwner() []rules.Match {
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
		// All packets without a socket match, because they satisfy every negated condition.
		return []rules.Match{rules.MatchOwner{Not: true, Socketless: true, IDs: allIDs()}}
	case len(matches) == 0:
		return []rules.Match{rules.MatchOwner{IDs: allIDs()}}
	}
	return matches
}

// ids parses the number of a user or group, or a range of numbers. A name makes the match unknown.
func (r *moduleReader) ids(w word) []rules.IDRange {
	from, to := w.text, w.text
	if i := strings.IndexAny(w.text, "-:"); i >= 0 {
		from, to = w.text[:i], w.text[i+1:]
	}
	first, firstValid := number(from, 32)
	last, lastValid := number(to, 32)
	switch {
	case isName(w.text):
		r.isUnknown = true
	case !firstValid || !lastValid || first > last || last > maxID:
		r.fail(w, "a numeric id (0-4294967294) or an ascending range of ids")
	}
	return []rules.IDRange{{First: uint32(first), Last: uint32(last)}}
}

// maxID is the largest ID. The next 32-bit number is -1, which the kernel uses for "no ID".
const maxID = 1<<32 - 2

// allIDs returns the range of all numbers of users or groups, including the number for "no ID".
func allIDs() []rules.IDRange { return []rules.IDRange{{First: 0, Last: 1<<32 - 1}} }

// addOwner writes the match owner. The range of all user IDs matches any socket and becomes
// --socket-exists. iptables has no such option for the range of all group IDs.
func (p *rulePrinter) addOwner(m rules.MatchOwner) error {
	if len(m.IDs) != 1 || m.Socketless && !m.Not {
		return fmt.Errorf("%s: iptables compares one range of ids", m)
	}
	ids, needsSocket := m.IDs[0], m.Not && !m.Socketless
	switch {
	case slices.Equal(m.IDs, allIDs()) && !m.Group && !needsSocket:
		p.add("-m", "owner")
		p.addOption(m.Not, "--socket-exists")
		return nil
	case ids.Last > maxID || ids.First > ids.Last:
		return fmt.Errorf("%s: iptables compares ids from 0 to %d", m, uint32(maxID))
	}
	p.add("-m", "owner")
	p.addOption(m.Not, map[bool]string{false: "--uid-owner", true: "--gid-owner"}[m.Group],
		ids.String())
	if needsSocket {
		p.add("--socket-exists")
	}
	return nil
}

// matchSocket parses the match socket. The model represents only matches of transparent sockets.
// The option --restore-skmark sets the packet's mark.
func (r *moduleReader) matchSocket() []rules.Match {
	var m rules.MatchSocket
	if r.option("--nowildcard") != nil {
		m.Kind = "nowildcard"
	}
	if r.option("--restore-skmark") != nil {
		r.isUnknown, r.effect = true, rules.AnyEffect
	}
	r.isUnknown = r.isUnknown || r.option("--transparent") == nil
	var flags uint8
	for i, option := range xt.SocketOptions {
		if r.option(option) != nil {
			flags |= 1 << i
		}
	}
	r.text = xt.SocketText(flags)
	r.rejectNegations()
	return []rules.Match{m}
}

// addSocket writes the match socket, which cannot be negated.
func (p *rulePrinter) addSocket(m rules.MatchSocket) error {
	if m.Not || m.Kind != "" && m.Kind != "nowildcard" {
		return fmt.Errorf("%s: iptables has no such match", m)
	}
	p.add("-m", "socket", "--transparent")
	if m.Kind != "" {
		p.add("--nowildcard")
	}
	return nil
}

// matchCgroup parses the match cgroup. The model represents the path of a cgroup of version 2, but
// not a class of version 1.
func (r *moduleReader) matchCgroup() []rules.Match {
	o := r.option("--path")
	if o != nil && !o.not && len(r.options) == 1 {
		if m := rules.CgroupOf(o.values[0].text); m.Path != "" {
			return []rules.Match{m}
		}
	}
	r.isUnknown = true
	return nil
}

// addCgroup writes the match cgroup.
func (p *rulePrinter) addCgroup(m rules.MatchCgroup) error {
	if m.Path == "" {
		return fmt.Errorf("%s: iptables compares the path", m)
	}
	p.add("-m", "cgroup", "--path", m.Path)
	return nil
}
