package rules

import (
	"bytes"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf16"
)

// Printable returns the text as one line: it replaces each white space character with a space, and
// each other character that is not printable with U+FFFD. The kernel accepts names of tables,
// chains, sets and interfaces that contain newlines and control sequences of terminals.
func Printable(text string) string {
	return strings.Map(func(c rune) rune {
		switch {
		case unicode.IsPrint(c):
			return c
		case unicode.IsSpace(c):
			return ' '
		}
		return unicode.ReplacementChar
	}, text)
}

// PrintableJSON returns the JSON text with an escape sequence in place of each character that is
// not printable. The result has the same meaning. Of these characters, [encoding/json] escapes only
// those below U+0020, U+2028 and U+2029.
func PrintableJSON(text []byte) []byte {
	var b bytes.Buffer
	for _, c := range string(text) {
		const firstControl = '\x7f' // JSON has lower ones only between tokens
		if c < firstControl || unicode.IsPrint(c) {
			b.WriteRune(c)
			continue
		}
		for _, unit := range utf16.Encode([]rune{c}) {
			fmt.Fprintf(&b, `\u%04x`, unit)
		}
	}
	return b.Bytes()
}

// String returns the tables in the language of nft(8), and the routing as comments. `nft -f`
// accepts the text of a compiled ruleset. A ruleset that was read may have matches and actions that
// nft has no syntax for. Each line is printable: see [Printable].
func (rs Ruleset) String() string {
	b := new(strings.Builder)
	for i := range rs.Tables {
		rs.Tables[i].print(b)
	}
	for _, p := range rs.Routing.Policies {
		fmt.Fprintf(b, "# %s\n", p)
	}
	for _, a := range rs.Routing.LoopbackAddrs {
		fmt.Fprintf(b, "# ip address add %s dev lo\n", a)
	}
	return b.String()
}

// print writes the table with its sets and chains.
func (t *Table) print(b *strings.Builder) {
	fmt.Fprintf(b, "table %s %s {\n", t.Family, Printable(t.Name))
	if t.Owned {
		b.WriteString("\tflags owner\n")
	}
	for _, set := range t.Sets() {
		keyType := set.Family().ipName() + "_addr"
		fmt.Fprintf(b, "\tset %s {\n\t\ttype %s\n\t\tflags interval\n", Printable(set.Set), keyType)
		elements := strings.Join(textsOf(set.Ranges, FormatAddrRange), ",\n\t\t\t     ")
		fmt.Fprintf(b, "\t\telements = { %s }\n\t}\n\n", elements)
	}
	for i := range t.Chains {
		if i > 0 {
			b.WriteString("\n")
		}
		t.Chains[i].print(b)
	}
	b.WriteString("}\n")
}

// Sets returns, for each named set of the table, the first match that uses it, in the order of the
// rules.
func (t *Table) Sets() []MatchAddr {
	var sets []MatchAddr
	seen := map[string]bool{}
	for _, c := range t.Chains {
		for _, r := range c.Rules {
			for _, m := range r.Matches {
				if addr, ok := m.(MatchAddr); ok && addr.Set != "" && !seen[addr.Set] {
					seen[addr.Set] = true
					sets = append(sets, addr)
				}
			}
		}
	}
	return sets
}

// print writes the chain with its rules and their comments.
func (c *Chain) print(b *strings.Builder) {
	fmt.Fprintf(b, "\tchain %s {\n", Printable(c.Name))
	if c.Base != nil {
		fmt.Fprintf(b, "\t\t%s\n", c.Base)
	}
	for i := range c.Rules {
		r := &c.Rules[i]
		fmt.Fprintf(b, "\t\t%s", Printable(r.String()))
		if r.Comment != "" {
			fmt.Fprintf(b, " comment %q", r.Comment)
		}
		b.WriteString("\n")
	}
	b.WriteString("\t}\n")
}

// String returns the rule in nft's syntax. The text contains names exactly as they were read; see
// [Printable].
func (r *Rule) String() string {
	words := r.matchTexts()
	for _, a := range r.Actions {
		words = append(words, a.String())
	}
	return strings.Join(words, " ")
}

// matchTexts returns the texts of the matches. As in nft, a single protocol directly before a port
// or TCP flags has no text of its own: the text of the port or the flags names the protocol.
func (r *Rule) matchTexts() []string {
	var words []string
	protocol := ""
	for i, m := range r.Matches {
		if p, ok := m.(MatchProtocol); ok && !p.Not && len(p.Protocols) == 1 &&
			i+1 < len(r.Matches) {
			switch r.Matches[i+1].(type) {
			case MatchPort, MatchTCPFlags:
				protocol = p.Protocols[0].String()
				continue
			}
		}
		text := m.String()
		if _, ok := m.(MatchPort); ok && protocol != "" {
			text = protocol + strings.TrimPrefix(text, "th")
		}
		words = append(words, text)
	}
	return words
}
