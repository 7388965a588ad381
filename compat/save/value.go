package save

import (
	"slices"
	"strconv"
	"strings"

	"github.com/sluice-mesh/sluice/rules"
)

// isName reports whether the text may be the name of a user, a service, a protocol or a host. Only
// the system that loads the rules can look it up.
func isName(text string) bool {
	if text == "" || !isLetter(rune(text[0])) {
		return false
	}
	other := func(c rune) bool {
		return !isLetter(c) && (c < '0' || c > '9') && !strings.ContainsRune("._-", c)
	}
	return !strings.ContainsFunc(text, other)
}

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

// A moduleReader parses the options of a match or target.
type moduleReader struct {
	*ruleReader
	*module
	// unknown reports that the model does not represent one of the options.
	unknown bool
	// effect is the possible effect of the match or target if it is unknown.
	effect rules.Effect
	// state is the state that it reads or changes if it is unknown.
	state string
	// text is its text if it is unknown; empty for the words of the rule.
	text string
}

// option returns an option, or nil if it was not given.
func (r *moduleReader) option(name string) *option {
	for i := range r.options {
		if r.options[i].name == name {
			return &r.options[i]
		}
	}
	return nil
}

const wantPort = "a port (0-65535)"

// port parses a port. Names of services are unknown.
func (r *moduleReader) port(w word, text string) uint16 {
	if isName(text) {
		r.unknown = true
		return 0
	}
	n, ok := number(text, 16)
	if !ok {
		r.fail(w, wantPort)
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
	if p.First > p.Last && !r.unknown {
		r.fail(w, "an ascending range of ports")
	}
	return p
}

// mark parses "VALUE" or "VALUE/MASK".
func (r *moduleReader) mark(w word) (value, mask uint32) {
	a, b, masked := strings.Cut(w.text, "/")
	v, ok := number(a, 32)
	m, okMask := uint64(1<<32-1), true
	if masked {
		m, okMask = number(b, 32)
	}
	if !ok || !okMask {
		r.fail(w, "a mark: VALUE or VALUE/MASK of 32 bits")
	}
	return uint32(v), uint32(m)
}

// ids parses a numeric id or a range. Names of users and groups are unknown.
func (r *moduleReader) ids(w word) []rules.IDRange {
	first, last, isRange := strings.Cut(w.text, "-")
	if !isRange {
		last = first
	}
	a, okA := number(first, 32)
	b, okB := number(last, 32)
	switch {
	case isName(w.text):
		r.unknown = true
	case !okA || !okB || a > b || b > maxID:
		r.fail(w, "a numeric id (0-4294967294) or an ascending range of ids")
	}
	return []rules.IDRange{{First: uint32(a), Last: uint32(b)}}
}

// maxID is the largest id: the last number is -1, which the kernel uses for "no id".
const maxID = 1<<32 - 2

// namedBits are named bits of a set, with names in upper case.
type namedBits struct {
	name string
	bits uint8
}

// list parses elements separated by commas as bits of a set.
func (r *moduleReader) list(w word, names []namedBits, want string) uint8 {
	var set uint8
	for text := range strings.SplitSeq(w.text, ",") {
		name := strings.ToUpper(text)
		i := slices.IndexFunc(names, func(n namedBits) bool { return n.name == name })
		if i < 0 {
			r.fail(w, "%s", want)
			return 0
		}
		set |= names[i].bits
	}
	return set
}
