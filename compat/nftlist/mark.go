package nftlist

import (
	"encoding/json"

	"github.com/sluice-mesh/sluice/rules"
)

// A markValue is the value of a mark that a statement sets: (key & mask) ^ xor.
type markValue struct {
	key       string // meta mark or ct mark
	mask, xor uint32
}

// markValueOf decodes a mark with bitwise operations on constants.
func markValueOf(value json.RawMessage) (markValue, bool) {
	if key := keyOf(value); key == "meta mark" || key == "ct mark" {
		return markValue{key: key, mask: ^uint32(0)}, true
	}
	var operation map[string][]json.RawMessage
	if json.Unmarshal(value, &operation) != nil || len(operation) != 1 {
		return markValue{}, false
	}
	for operator, operands := range operation {
		var n uint32
		if len(operands) != 2 || json.Unmarshal(operands[1], &n) != nil ||
			string(operands[1]) == "null" {
			break
		}
		v, ok := markValueOf(operands[0])
		if !ok {
			break
		}
		switch operator {
		case "&":
			return markValue{v.key, v.mask & n, v.xor & n}, true
		case "|":
			return markValue{v.key, v.mask &^ n, v.xor | n}, true
		case "^":
			return markValue{v.key, v.mask, v.xor ^ n}, true
		}
	}
	return markValue{}, false
}

// setPacketMark returns the action that sets the packet's mark to the value.
func setPacketMark(v markValue) rules.Action {
	switch {
	case v.key == "meta mark":
		return rules.SetMark{Value: v.xor, Mask: ^v.mask}
	case v.mask == ^uint32(0) && v.xor == 0:
		return rules.RestoreMark{}
	}
	return rules.MixMark{ConntrackMark: v.mask, Xor: v.xor}
}

// setConntrackMark returns the action that sets the connection's mark to the value.
func setConntrackMark(v markValue) rules.Action {
	switch {
	case v.key == "ct mark":
		return rules.MixMark{Conntrack: true, ConntrackMark: v.mask, Xor: v.xor}
	case v.mask == ^uint32(0) && v.xor == 0:
		return rules.SaveMark{}
	}
	return rules.MixMark{Conntrack: true, Mark: v.mask, Xor: v.xor}
}

// endsWithoutConnection reports whether nft ends the rule after the action for packets without a
// connection, because it reads the connection's mark. A [rules.RestoreMark] does so itself.
func endsWithoutConnection(a rules.Action) bool {
	mix, ok := a.(rules.MixMark)
	return ok && (mix.ConntrackMark != 0 || !mix.Conntrack)
}
