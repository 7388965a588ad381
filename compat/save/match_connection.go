package save

import (
	"strings"

	"github.com/sluice-mesh/sluice/rules"
)

// stateBits contains iptables' names of connection states, with their bits in a [rules.StateSet].
var stateBits = []namedBits{
	{"NEW", 1 << rules.New},
	{"ESTABLISHED", 1 << rules.Established},
	{"RELATED", 1 << rules.Related},
	{"INVALID", 1 << rules.Invalid},
	{"UNTRACKED", 1 << rules.Untracked},
	{"SNAT", 1 << rules.SNAT},
	{"DNAT", 1 << rules.DNAT},
}

// statusBits contains iptables' names of the bits of a [rules.Status].
var statusBits = []namedBits{
	{"NONE", 0},
	{"EXPECTED", uint8(rules.StatusExpected)},
	{"SEEN_REPLY", uint8(rules.StatusSeenReply)},
	{"ASSURED", uint8(rules.StatusAssured)},
	{"CONFIRMED", uint8(rules.StatusConfirmed)},
}

// connection parses the matches conntrack and state. A match with several options is unknown. It is
// not the conjunction of the options, because for a packet without a connection the kernel compares
// only the state (conntrack_mt in net/netfilter/xt_conntrack.c).
func (r *moduleReader) connection() []rules.Match {
	if len(r.options) == 0 {
		r.fail(r.flag, "an option after it")
		return nil
	}
	o := r.options[0]
	if len(r.options) > 1 {
		r.isUnknown = true
		return nil
	}
	switch w := o.values[0]; o.name {
	case "--ctstate", "--state":
		const want = "states: a list of NEW, ESTABLISHED, RELATED, INVALID, UNTRACKED, SNAT and DNAT"
		set := r.bitSet(w, stateBits, want)
		return []rules.Match{rules.MatchState{Not: o.not, States: rules.StateSet(set)}}
	case "--ctstatus":
		const want = "status bits: NONE, or a list of EXPECTED, SEEN_REPLY, ASSURED and CONFIRMED"
		set := r.bitSet(w, statusBits, want)
		return []rules.Match{rules.MatchStatus{Not: o.not, Status: rules.Status(set)}}
	case "--ctdir":
		reply := strings.EqualFold(w.text, "REPLY")
		if !reply && !strings.EqualFold(w.text, "ORIGINAL") {
			r.fail(w, "a direction: ORIGINAL or REPLY")
		}
		return []rules.Match{rules.MatchDirection{Reply: reply != o.not}}
	}
	r.isUnknown = true
	return nil
}
