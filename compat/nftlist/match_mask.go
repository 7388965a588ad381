package nftlist

import (
	"encoding/json"

	"github.com/sluice-mesh/sluice/rules"
)

// maskedMatch decodes the comparison of a mark or of the flags of TCP under a mask.
func maskedMatch(op string, left, right json.RawMessage) []rules.Match {
	var and struct {
		Operands []json.RawMessage `json:"&"`
	}
	if op != "==" && op != "!=" || !exactly(left, &and) || len(and.Operands) != 2 {
		return nil
	}
	key := keyOf(and.Operands[0])
	switch key {
	case "tcp flags":
		return flagsMatch(op == "!=", and.Operands[1], right)
	case "meta mark", "ct mark":
	default:
		return nil
	}
	var mask, value uint32
	if json.Unmarshal(and.Operands[1], &mask) != nil || json.Unmarshal(right, &value) != nil ||
		string(right) == "null" || value&^mask != 0 {
		return nil
	}
	return []rules.Match{rules.MatchMark{
		Conntrack: key == "ct mark", Not: op == "!=", Value: value, Mask: mask,
	}}
}

// flagsMatch decodes tcp flags & MASK == VALUE.
func flagsMatch(not bool, mask, value json.RawMessage) []rules.Match {
	m := rules.MatchTCPFlags{Not: not}
	var ok bool
	if m.Mask, ok = tcpFlags(mask); !ok {
		return nil
	}
	if m.Value, ok = tcpFlags(value); !ok || m.Value&^m.Mask != 0 {
		return nil
	}
	return []rules.Match{rules.MatchProtocol{Protocols: []rules.Protocol{rules.TCP}}, m}
}

// tcpFlags decodes flags: one or a list of them, by names or numbers.
func tcpFlags(text json.RawMessage) (rules.TCPFlags, bool) {
	list := []json.RawMessage{text}
	if !isScalar(text) && json.Unmarshal(text, &list) != nil {
		return 0, false
	}
	var flags rules.TCPFlags
	for _, one := range list {
		var name string
		var number uint8
		switch {
		case json.Unmarshal(one, &name) == nil:
			flag := rules.FIN
			for flag != 0 && flag.String() != name {
				flag <<= 1
			}
			if flag == 0 {
				return 0, false
			}
			flags |= flag
		case json.Unmarshal(one, &number) == nil:
			flags |= rules.TCPFlags(number)
		default:
			return 0, false
		}
	}
	return flags, len(list) > 0
}
