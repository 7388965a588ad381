package rules

// Negated returns the match of the packets that have the compared field with another value. It
// returns a [MatchFamily], [MatchCgroup], [MatchTuple] or [Unknown] unchanged.
func Negated(match Match) Match {
	switch m := match.(type) {
	case MatchInterface:
		m.Not = !m.Not
		return m
	case MatchAddr:
		m.Not = !m.Not
		return m
	case MatchProtocol:
		m.Not = !m.Not
		return m
	case MatchPort:
		m.Not = !m.Not
		return m
	case MatchICMP:
		m.Not = !m.Not
		return m
	case MatchOwner:
		m.Not = !m.Not
		return m
	case MatchMark:
		m.Not = !m.Not
		return m
	case MatchMarkRange:
		m.Not = !m.Not
		return m
	case MatchState:
		m.Not = !m.Not
		return m
	case MatchStatus:
		m.Not = !m.Not
		return m
	case MatchDirection:
		m.Reply = !m.Reply
		return m
	case MatchAddrType:
		m.Not = !m.Not
		return m
	case MatchTCPFlags:
		m.Not = !m.Not
		return m
	case MatchSocket:
		m.Not = !m.Not
		return m
	case MatchListed:
		m.Not = !m.Not
		return m
	case MatchReversePath:
		m.Not = !m.Not
		return m
	}
	return match
}
