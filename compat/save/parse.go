package save

import (
	"fmt"
	"io"
	"iter"
	"strconv"
	"strings"

	"github.com/sluice-mesh/sluice/rules"
)

// Parse parses the output of iptables-save for one family, or input of iptables-restore, and
// returns the tables that would result in the kernel. It returns only the tables that the text
// contains, each with all built-in chains. It executes -N, -A, -I, -D, -F, -P and -X in order. A
// rule with several addresses becomes several rules.
//
// [rules.Rule.Line] is the line number of the rule. [rules.Rule.Hits] contains the counter in the
// text, and every rule has a counter action, as in the kernel. file is the name of the text in
// errors. If the text has syntax errors, Parse returns up to twenty [*SyntaxError] values, joined,
// and no tables. A second block of the same table is a syntax error too, because it may be from
// another program. A text without any table results in one error, which describes the text. Such a
// text is often the output of a failed command, and must not be treated as an empty ruleset.
//
// Long lists of addresses result in many rules. If a rule would result in more than 4096 rules, and
// the addresses of each list are disjoint, it becomes a single rule that matches all addresses of
// the lists. The text must then not refer to rules of this chain by number. Parse returns an error
// for a text that adds more than 260,000 rules and chains, or fewer if they have many matches, even
// if later commands delete them.
func Parse(family rules.Family, file string, r io.Reader) ([]rules.Table, error) {
	data, err := io.ReadAll(r)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", file, err)
	}
	p := newParser(family, file)
	tables := p.parse(linesOf(string(data)))
	if len(p.beginLines) == 0 && (p.errs.list == nil || p.outsideErr != nil) {
		return nil, noTableError(file, string(data), p.outsideErr)
	}
	if err := p.errs.err(); err != nil {
		return nil, err
	}
	return tables, nil
}

// linesOf returns the lines of a text with their numbers.
func linesOf(text string) iter.Seq[textLine] {
	return func(yield func(textLine) bool) {
		number := 0
		for line := range strings.Lines(text) {
			number++
			if !yield(textLine{number: number, text: strings.TrimRight(line, "\r\n")}) {
				return
			}
		}
	}
}

// A textLine is a line with its position.
type textLine struct {
	number int
	text   string
	// before is the number of bytes of the line before the text, or -1 if it is unknown.
	before int
}

// A parser parses the tables of one family.
type parser struct {
	family      rules.Family
	file        string
	line        textLine
	tables      []*table
	beginLines  map[string]int // the line at which each table begins, by name
	isTableOpen bool           // the last table has not been committed
	skipsTable  bool           // the line belongs to a table that cannot be read
	// isNFT is set if the last header names iptables-nft, which converts the match limit to an
	// expression of nftables.
	isNFT bool
	// outsideErr is the error for the first line that is neither blank nor a comment, if this line
	// is outside of a table.
	outsideErr *SyntaxError
	words      []word // the words of the line; reused to save memory
	errs       syntaxErrors
	size       int // the size of the rules and chains; see maxSize
}

// newParser returns a parser of a text with the name file in errors.
func newParser(family rules.Family, file string) *parser {
	return &parser{family: family, file: file, beginLines: map[string]int{}}
}

// parse parses the lines and returns the tables, or none if there are errors. The errors are in
// errs.
func (p *parser) parse(lines iter.Seq[textLine]) []rules.Table {
	for p.line = range lines {
		p.errs.add(p.readLine())
		if p.size > maxSize {
			return nil
		}
	}
	if p.isTableOpen {
		p.errs.add(p.errorAtEnd("COMMIT of table %s", p.table().Name))
	}
	if len(p.errs.list) > 0 {
		return nil
	}
	var tables []rules.Table
	for _, t := range p.tables {
		tables = append(tables, t.build())
	}
	return tables
}

// errorAt returns an error at a word. The format describes the expected text.
func (p *parser) errorAt(w word, format string, args ...any) *SyntaxError {
	e := &SyntaxError{
		File: p.file, Line: p.line.number, Column: w.column + p.line.before, Token: w.raw,
	}
	e.Want = fmt.Sprintf(format, args...)
	if p.line.before < 0 {
		e.Column = 0
	}
	return e
}

// errorAtEnd returns an error at the end of the line. The format describes the expected text.
func (p *parser) errorAtEnd(format string, args ...any) *SyntaxError {
	return p.errorAt(word{column: len(p.line.text) + 1}, format, args...)
}

// table returns the current table.
func (p *parser) table() *table { return p.tables[len(p.tables)-1] }

// readLine parses the current line.
func (p *parser) readLine() *SyntaxError {
	text := strings.Trim(p.line.text, blanks)
	switch {
	case text == "":
		return nil
	case text[0] == '#':
		return p.readComment()
	}
	words, quote := splitWords(p.line.text, p.words[:0])
	p.words = words
	if quote > 0 {
		return p.outsideError(p.errorAt(word{raw: `"`, column: quote}, "a closing quote"))
	}
	first := words[0]
	switch {
	case first.raw[0] == '*':
		err := p.beginTable(words)
		p.skipsTable = err != nil
		return err
	case p.skipsTable:
		p.skipsTable = !first.is("COMMIT")
		return nil
	case !p.isTableOpen:
		return p.outsideError(p.errorAt(first, "the first line of a table, such as *nat"))
	case first.is("COMMIT"):
		p.isTableOpen = false
		if len(words) > 1 {
			return p.errorAt(words[1], "nothing after COMMIT")
		}
		return nil
	case first.raw[0] == ':':
		return p.declareChain(words)
	}
	return p.readCommand(words)
}

// outsideError returns the error of a line. It records the error if no table and no other error
// precedes the line.
func (p *parser) outsideError(err *SyntaxError) *SyntaxError {
	if len(p.beginLines) == 0 && p.errs.list == nil {
		p.outsideErr = err
	}
	return err
}

// readComment reads the header of a table, such as "# Generated by iptables-save v1.8.9 (nf_tables)
// on" with the date. It returns an error for the comment that iptables-nft-save writes for a table
// that it cannot represent.
func (p *parser) readComment() *SyntaxError {
	if strings.HasPrefix(p.line.text, "# Generated by ") {
		p.isNFT = strings.Contains(p.line.text, " (nf_tables) ")
	}
	if strings.Contains(p.line.text, " is incompatible, use 'nft' tool") {
		return p.errorAt(word{raw: p.line.text, column: 1},
			"the table itself: it is not in this text")
	}
	return nil
}

// beginTable parses "*nat" or, as istio-iptables writes it, "* nat".
func (p *parser) beginTable(words []word) *SyntaxError {
	name := words[0]
	name.raw, name.column = name.raw[1:], name.column+1
	if name.raw == "" && len(words) > 1 {
		words = words[1:]
		name = words[0]
	}
	if p.isTableOpen {
		p.errs.add(p.errorAt(words[0], "COMMIT of table %s before the next table", p.table().Name))
		p.isTableOpen = false
	}
	switch line, again := p.beginLines[name.raw]; {
	case len(words) > 1:
		return p.errorAt(words[1], "nothing after the name of the table")
	case again:
		return p.errorAt(name, "each table once: this one began on line %d", line)
	}
	t, known := newTable(p.family, name.raw)
	if !known {
		return p.errorAt(name, "a table: raw, mangle, nat, filter or security")
	}
	p.tables = append(p.tables, t)
	p.beginLines[t.Name], p.isTableOpen = p.line.number, true
	return nil
}

// declareChain parses ":NAME POLICY [PACKETS:BYTES]". The policy of a user-defined chain is "-".
// For a built-in chain, "-" keeps the policy.
func (p *parser) declareChain(words []word) *SyntaxError {
	name := words[0]
	name.text, name.raw, name.column = name.text[1:], name.raw[1:], name.column+1
	if len(words) < 2 {
		return p.errorAtEnd("the policy of chain %s", name.raw)
	}
	if len(words) > 2 {
		if _, ok := parseCounters(words[2].raw); !ok {
			return p.errorAt(words[2], "a counter such as [12:3456]")
		}
	}
	if len(words) > 3 {
		return p.errorAt(words[3], "nothing after the counter of a chain")
	}
	if c := p.table().chainByName[name.text]; c != nil && c.base != nil {
		if words[1].is("-") {
			return nil
		}
		return p.setPolicy(c, words[1])
	}
	if !words[1].is("-") {
		return p.errorAt(words[1], "- as the policy of chain %s, which is not built in", name.raw)
	}
	return p.addChain(name)
}

// setPolicy sets the policy of a built-in chain.
func (p *parser) setPolicy(c *chain, policy word) *SyntaxError {
	switch policy.raw {
	case "ACCEPT":
		c.base.Drop = false
	case "DROP":
		c.base.Drop = true
	default:
		return p.errorAt(policy, "a policy: ACCEPT or DROP")
	}
	return nil
}

// maxChainName is the maximum length of a chain name in bytes (XT_EXTENSION_MAXNAMELEN of
// linux/netfilter/x_tables.h without the terminating zero).
const maxChainName = 28

// addChain adds an empty user-defined chain.
func (p *parser) addChain(name word) *SyntaxError {
	if p.table().chainByName[name.text] != nil {
		return p.errorAt(name, "the name of a new chain: the table already has this chain")
	}
	if !isChainName(name.text) {
		return p.errorAt(name,
			"the name of a chain: 1 to %d bytes without blanks, not beginning with - or !",
			maxChainName)
	}
	if !p.addSize(headerSize) {
		return p.errorAt(name, "fewer chains: a text may add at most %d rules and chains, or fewer with many matches", maxRules)
	}
	p.table().add(&chain{name: name.text})
	return nil
}

// isChainName reports whether iptables accepts the name for a user-defined chain.
func isChainName(name string) bool {
	return name != "" && len(name) <= maxChainName && name[0] != '-' && name[0] != '!' &&
		!strings.ContainsFunc(name, func(c rune) bool {
			return c <= ' ' || c == 0x7f || c == '"' || c == '\\'
		})
}

// parseCounters parses "[PACKETS:BYTES]".
func parseCounters(text string) (rules.Hits, bool) {
	inner, hasOpening := strings.CutPrefix(text, "[")
	inner, hasClosing := strings.CutSuffix(inner, "]")
	before, after, hasColon := strings.Cut(inner, ":")
	packets, packetsErr := strconv.ParseUint(before, 10, 64)
	bytes, bytesErr := strconv.ParseUint(after, 10, 64)
	return rules.Hits{Packets: packets, Bytes: bytes},
		hasOpening && hasClosing && hasColon && packetsErr == nil && bytesErr == nil
}
