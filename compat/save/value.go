package save

import (
	"slices"
	"strconv"
	"strings"

	"github.com/sluice-mesh/sluice/rules"
)

// isName reports whether the text may be the name of a user, a service, a protocol or a host, which
// only the system that loads the rules can look up.
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

// number reads a number as strtoul with base 0 does: decimal, hexadecimal with 0x, or octal with 0.
func number(text string, bits int) (uint64, bool) {
	if len(text) > 1 && text[0] == '0' && strings.ContainsAny(text[1:2], "bBoO") ||
		strings.Contains(text, "_") {
		return 0, false
	}
	n, err := strconv.ParseUint(text, 0, bits)
	return n, err == nil
}

// A moduleReader reads the options of one match or target.
type moduleReader struct {
	*ruleReader
	*module
	// unknown reports that an option is known but has no word in the model.
	unknown bool
	// effect is what the match or target may do if it is unknown.
	effect rules.Effect
	// state is what it depends on or changes if it is unknown.
	state string
}

// option returns an option that was given, or nil.
func (r *moduleReader) option(name string) *option {
	for i := range r.options {
		if r.options[i].name == name {
			return &r.options[i]
		}
	}
	return nil
}

const wantPort = "a port (0-65535)"

// port reads a port. The name of a service is left to the system that loads the rules.
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

// ports reads a port or a range "FIRST:LAST" of which either end may be left out.
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

// mark reads "VALUE" or "VALUE/MASK".
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

// ids reads a numeric id or a range of them. The name of a user or a group is left to the system
// that loads the rules.
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

// namedBits are bits of a set that have a name, in upper case.
type namedBits struct {
	name string
	bits uint8
}

// list reads elements separated by commas as bits of a set.
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
