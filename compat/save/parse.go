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
// returns the tables as the kernel would have them. Each table has its built-in chains, even if the
// text does not mention them. -N, -A, -I, -D, -F, -P and -X are executed in order. A rule with
// several addresses becomes several rules. A table that the text does not mention is not returned.
//
// [rules.Rule.Line] is the line number of the rule. [rules.Rule.Hits] contains the counter in the
// text, and every rule has a counter action, as in the kernel. file is the name of the text in
// errors. Syntax errors are [*SyntaxError] values; up to twenty of them are joined, and no table is
// returned with them. A second block of the same table is a syntax error too, because it may be
// from another program. A text without any table is one error, which describes the text: it is
// often the output of a failed command and must not be treated as an empty ruleset.
//
// Long lists of addresses result in many rules. If a rule would result in more than 4096, and the
// addresses of each list are disjoint, it becomes a single rule that matches all of them; its chain
// then has no rule numbers. If lists would result in more rules than fit into a reasonable amount
// of memory, Parse returns an error.
func Parse(family rules.Family, file string, r io.Reader) ([]rules.Table, error) {
	data, err := io.ReadAll(r)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", file, err)
	}
	p := newParser(family, file)
	tables := p.parse(linesOf(string(data)))
	if len(p.begun) == 0 && (p.errs.list == nil || p.outside != nil) {
		return nil, notSave(file, string(data), p.outside)
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
	// before is the number of bytes of the line before the text; -1 if it is unknown.
	before int
}

// A parser parses the tables of one family.
type parser struct {
	family     rules.Family
	file       string
	line       textLine
	tables     []*table
	begun      map[string]int // the first lines of tables
	open       bool           // the last table has not been committed
	unreadable bool           // the line belongs to a table that cannot be read
	// outside is the error for the first line outside a table.
	outside *SyntaxError
	words   []word // of the line, kept for its memory
	errs    syntaxErrors
	// expanded is the size of the rules that resulted from lists of addresses, as limited by
	// maxExpansion.
	expanded int
}

func newParser(family rules.Family, file string) *parser {
	return &parser{family: family, file: file, begun: map[string]int{}}
}

// parse parses the lines.
func (p *parser) parse(lines iter.Seq[textLine]) []rules.Table {
	for p.line = range lines {
		p.errs.add(p.readLine())
	}
	if p.open {
		p.errs.add(p.atEnd("COMMIT of table %s", p.table().Name))
	}
	var list []rules.Table
	for _, t := range p.tables {
		list = append(list, t.build())
	}
	return list
}

// at returns an error at a word.
func (p *parser) at(w word, format string, args ...any) *SyntaxError {
	e := &SyntaxError{
		File: p.file, Line: p.line.number, Column: w.column + p.line.before, Token: w.raw,
	}
	e.Want = fmt.Sprintf(format, args...)
	if p.line.before < 0 {
		e.Column = 0
	}
	return e
}

// atEnd returns an error at the end of a line.
func (p *parser) atEnd(format string, args ...any) *SyntaxError {
	return p.at(word{column: len(p.line.text) + 1}, format, args...)
}

// table returns the current table.
func (p *parser) table() *table { return p.tables[len(p.tables)-1] }

func (p *parser) readLine() *SyntaxError {
	text := strings.Trim(p.line.text, blanks)
	switch {
	case text == "":
		return nil
	case text[0] == '#':
		return p.comment()
	}
	words, open := splitWords(p.line.text, p.words[:0])
	p.words = words
	if open > 0 {
		return p.notInTable(p.at(word{raw: `"`, column: open}, "a closing quote"))
	}
	first := words[0]
	switch {
	case first.raw[0] == '*':
		err := p.beginTable(words)
		p.unreadable = err != nil && !p.open
		return err
	case p.unreadable:
		p.unreadable = !first.is("COMMIT")
		return nil
	case !p.open:
		return p.notInTable(p.at(first, "a table to begin, such as *nat"))
	case first.is("COMMIT"):
		p.open = false
		if len(words) > 1 {
			return p.at(words[1], "nothing after COMMIT")
		}
		return nil
	case first.raw[0] == ':':
		return p.declareChain(words)
	}
	return p.command(words)
}

// notInTable stores the error of a line, if the text begins with it and not with a table. It
// returns the error.
func (p *parser) notInTable(err *SyntaxError) *SyntaxError {
	if len(p.begun) == 0 && p.errs.list == nil {
		p.outside = err
	}
	return err
}

// comment detects the comment that iptables-nft-save writes for a table that it cannot represent.
func (p *parser) comment() *SyntaxError {
	if strings.Contains(p.line.text, " is incompatible, use 'nft' tool") {
		return p.at(word{raw: p.line.text, column: 1}, "the table itself: it is not in this text")
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
	switch line, again := p.begun[name.raw]; {
	case len(words) > 1:
		return p.at(words[1], "nothing after the name of the table")
	case p.open:
		return p.at(words[0], "COMMIT of table %s before another begins", p.table().Name)
	case again:
		return p.at(name, "each table once: this one began on line %d", line)
	}
	t, known := newTable(p.family, name.raw)
	if !known {
		return p.at(name, "a table: raw, mangle, nat, filter or security")
	}
	p.tables = append(p.tables, t)
	p.begun[t.Name], p.open = p.line.number, true
	return nil
}

// declareChain parses ":NAME POLICY [PACKETS:BYTES]". The policy of a user-defined chain is "-",
// which keeps the policy of a built-in one.
func (p *parser) declareChain(words []word) *SyntaxError {
	name := words[0]
	name.text, name.raw, name.column = name.text[1:], name.raw[1:], name.column+1
	if len(words) < 2 {
		return p.atEnd("the policy of chain %s", name.raw)
	}
	if len(words) > 2 {
		if _, ok := parseCounters(words[2].raw); !ok {
			return p.at(words[2], "a counter, as [12:3456]")
		}
	}
	if len(words) > 3 {
		return p.at(words[3], "nothing after the counter of a chain")
	}
	if c := p.table().named[name.text]; c != nil && c.base != nil {
		if words[1].is("-") {
			return nil
		}
		return p.setPolicy(c, words[1])
	}
	if !words[1].is("-") {
		return p.at(words[1], "- as the policy of chain %s, which is not built in", name.raw)
	}
	return p.addChain(name)
}

func (p *parser) setPolicy(c *chain, policy word) *SyntaxError {
	switch policy.raw {
	case "ACCEPT":
		c.base.Drop = false
	case "DROP":
		c.base.Drop = true
	default:
		return p.at(policy, "a policy: ACCEPT or DROP")
	}
	return nil
}

// maxChainName is XT_EXTENSION_MAXNAMELEN of linux/netfilter/x_tables.h without the terminating
// zero.
const maxChainName = 28

func (p *parser) addChain(name word) *SyntaxError {
	if p.table().named[name.text] != nil {
		return p.at(name, "the name of a new chain: the table has this one")
	}
	if !isChainName(name.text) {
		return p.at(name,
			"the name of a chain: 1 to %d bytes without blank, not beginning with - or !",
			maxChainName)
	}
	p.table().add(&chain{name: name.text})
	return nil
}

func isChainName(name string) bool {
	return name != "" && len(name) <= maxChainName && name[0] != '-' && name[0] != '!' &&
		!strings.ContainsFunc(name, func(c rune) bool {
			return c <= ' ' || c == 0x7f || c == '"' || c == '\\'
		})
}

// parseCounters parses "[PACKETS:BYTES]".
func parseCounters(text string) (rules.Hits, bool) {
	inner, ok := strings.CutPrefix(text, "[")
	inner, closed := strings.CutSuffix(inner, "]")
	a, b, parted := strings.Cut(inner, ":")
	packets, errA := strconv.ParseUint(a, 10, 64)
	bytes, errB := strconv.ParseUint(b, 10, 64)
	return rules.Hits{Packets: packets, Bytes: bytes}, ok && closed && parted && errA == nil &&
		errB == nil
}
