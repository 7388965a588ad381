package save

import (
	"slices"
	"strconv"
	"strings"

	"github.com/sluice-mesh/sluice/rules"
)

// isName reports whether the text may be the name of a user, a service, a protocol or a host. Such
// a name has a meaning only on the system that loads the rules.
func isName(text string) bool {
	if text == "" || !isLetter(rune(text[0])) {
		return false
	}
	isInvalid := func(c rune) bool {
		return !isLetter(c) && (c < '0' || c > '9') && !strings.ContainsRune("._-", c)
	}
	return !strings.ContainsFunc(text, isInvalid)
}

// isLetter reports whether the character is an ASCII letter.
func isLetter(c rune) bool { return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' }

// number parses a number like strtoul with base 0: decimal, hexadecimal with 0x, or octal with 0.
func number(text string, bits int) (uint64, bool) {
	if len(text) > 1 && text[0] == '0' && strings.ContainsAny(text[1:2], "bBoO") ||
		strings.Contains(text, "_") {
		return 0, false
	}
	n, err := strconv.ParseUint(text, 0, bits)
	return n, err == nil
}

// port parses a port. The name of a service makes the match or target unknown.
func (r *moduleReader) port(w word, text string) uint16 {
	if isName(text) {
		r.isUnknown = true
		return 0
	}
	n, ok := number(text, 16)
	if !ok {
		r.fail(w, "a port (0-65535)")
	}
	return uint16(n)
}

// ports parses a port, or a range "FIRST:LAST" in which either end may be missing.
func (r *moduleReader) ports(w word, text string) rules.PortRange {
	first, last, isRange := strings.Cut(text, ":")
	if !isRange {
		return rules.Single(r.port(w, text))
	}
	p := rules.PortRange{Last: 1<<16 - 1}
	if first != "" {
		p.First = r.port(w, first)
	}
	if last != "" {
		p.Last = r.port(w, last)
	}
	if p.First > p.Last && !r.isUnknown {
		r.fail(w, "an ascending range of ports")
	}
	return p
}

// mark parses "VALUE" or "VALUE/MASK".
func (r *moduleReader) mark(w word) (value, mask uint32) {
	valueText, maskText, hasMask := strings.Cut(w.text, "/")
	v, valueValid := number(valueText, 32)
	m, maskValid := uint64(allBits), true
	if hasMask {
		m, maskValid = number(maskText, 32)
	}
	if !valueValid || !maskValid {
		r.fail(w, "a mark: VALUE or VALUE/MASK of 32 bits")
	}
	return uint32(v), uint32(m)
}

// namedBits is a name in upper case, with the bits that it stands for.
type namedBits struct {
	name string
	bits uint8
}

// bitSet parses names separated by commas, and returns the union of their bits. want describes the
// expected text in errors. Like iptables, it accepts abbreviated names of states and status bits,
// which all differ in the first letter, and empty names of TCP flags.
func (r *moduleReader) bitSet(w word, names []namedBits, want string) uint8 {
	var set uint8
	for text := range strings.SplitSeq(w.text, ",") {
		name := strings.ToUpper(text)
		isFlags := &names[0] == &flagBits[0]
		if isFlags && name == "" {
			continue
		}
		i := slices.IndexFunc(names, func(n namedBits) bool {
			return n.name == name || !isFlags && name != "" && strings.HasPrefix(n.name, name)
		})
		if i < 0 {
			r.fail(w, "%s", want)
			return 0
		}
		set |= names[i].bits
	}
	return set
}

// numberRange parses a number, or a range "FIRST:LAST" in which either end may be missing.
func numberRange(text string, bits int) (first, last uint32, ok bool) {
	firstText, lastText, isRange := strings.Cut(text, ":")
	a, ok := number(firstText, bits)
	if !isRange {
		return uint32(a), uint32(a), ok
	}
	b, lastValid := number(lastText, bits)
	if lastText == "" {
		b, lastValid = 1<<bits-1, true
	}
	return uint32(a), uint32(b), (ok || firstText == "") && lastValid && a <= b
}
