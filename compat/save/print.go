package save

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/sluice-mesh/sluice/rules"
)

// Print writes tables of one family in the format of iptables-save, with counters. iptables-restore
// loads the text, and [Parse] returns the same tables if they have all built-in chains. Print omits
// parts that have no effect: names of sets, line numbers, and matches of all ports.
//
// Each rule must be expressible in xtables. It may have one match of the protocol and of each
// interface, and one action in addition to the counter. Each match may have one value: one
// interface, range of addresses, protocol or range of IDs, or up to fifteen ports. Otherwise Print
// writes nothing, and returns up to twenty errors and the number of further errors, joined. Each
// error names the table, and the chain and the rule that it concerns, if any. Print does not check
// whether the kernel allows a match or target, such as owner or TPROXY, at the hook.
func Print(w io.Writer, tables []rules.Table) error {
	var text bytes.Buffer
	var errs []error
	for i := range tables {
		t := &tables[i]
		p := tablePrinter{Buffer: &text, table: t}
		p.print()
		for _, err := range p.errs {
			errs = append(errs, fmt.Errorf("table %s %s%w", t.Family, t.Name, err))
		}
		if t.Family != tables[0].Family {
			errs = append(errs, fmt.Errorf("table %s %s: want family %s, like the first table",
				t.Family, t.Name, tables[0].Family))
		}
	}
	if len(errs) > maxErrors {
		errs = append(errs[:maxErrors:maxErrors], fmt.Errorf("%d more errors", len(errs)-maxErrors))
	}
	if len(errs) > 0 {
		return errors.Join(errs...)
	}
	_, err := w.Write(text.Bytes())
	return err
}

// A tablePrinter writes a table, and collects errors about the parts that iptables cannot
// represent.
type tablePrinter struct {
	*bytes.Buffer
	table *rules.Table
	chain *rules.Chain // the current chain, nil before the first one
	errs  []error
}

// addError records an error about a rule of the current chain. ruleNumber counts the rules of the
// chain from 1. If it is 0, the error is about the current chain or, before the first chain, about
// the table.
func (p *tablePrinter) addError(ruleNumber int, err error) {
	position := ""
	if p.chain != nil {
		position = " chain " + p.chain.Name
	}
	if ruleNumber > 0 {
		position += fmt.Sprintf(" rule %d", ruleNumber)
	}
	p.errs = append(p.errs, fmt.Errorf("%s: %w", position, err))
}

// print writes the table.
func (p *tablePrinter) print() {
	if builtInHooks(p.table.Name) == nil || p.table.Family == rules.Inet {
		p.addError(0, errors.New("iptables has no such table"))
		return
	}
	fmt.Fprintf(p, "*%s\n", p.table.Name)
	for i := range p.table.Chains {
		p.chain = &p.table.Chains[i]
		policy, err := p.policy()
		if err != nil {
			p.addError(0, err)
		}
		fmt.Fprintf(p, ":%s %s [0:0]\n", p.chain.Name, policy)
	}
	for i := range p.table.Chains {
		p.chain = &p.table.Chains[i]
		for j := range p.chain.Rules {
			if err := p.printRule(&p.chain.Rules[j]); err != nil {
				p.addError(j+1, err)
			}
		}
	}
	p.WriteString("COMMIT\n")
}

// policy returns the policy of the chain as iptables-save prints it. It returns an error if
// iptables cannot have such a chain.
func (p *tablePrinter) policy() (string, error) {
	c := p.chain
	hook, builtIn := HookOf(p.table.Name, c.Name)
	switch {
	case !isChainName(c.Name):
		return "", errors.New("iptables does not allow this chain name")
	case builtIn && !sameBase(c.Base, p.table.Name, hook):
		return "", fmt.Errorf("%s: iptables has %s", c.Base, Base(p.table.Name, hook, false))
	case builtIn && c.Base.Drop:
		return "DROP", nil
	case builtIn:
		return "ACCEPT", nil
	case c.Base != nil:
		return "", errors.New("only built-in chains have a hook")
	case knownTargets()[c.Name] != nil:
		return "", errors.New("a target has the same name")
	}
	return "-", nil
}

// sameBase reports whether b has the type, the hook and the priority of the built-in chain of the
// table at the hook. It ignores the policy, and the order of chains with equal priority.
func sameBase(b *rules.Base, table string, hook rules.Hook) bool {
	if b == nil {
		return false
	}
	want := Base(table, hook, b.Drop)
	want.Order = b.Order
	return *b == *want
}

// maxWords is the maximum number of words of a rule in iptables-restore: 255 arguments (MAX_ARGC in
// iptables' xshared.h) minus the arguments that iptables-restore adds. For a rule with a counter,
// iptables-restore adds another counterWords arguments.
const (
	maxWords     = 251
	counterWords = 3
)

// printRule writes a rule. If it returns an error, it has written nothing.
func (p *tablePrinter) printRule(r *rules.Rule) error {
	line := rulePrinter{table: p.table, chain: p.chain, words: []string{"-A", p.chain.Name}}
	if err := line.addMatches(r.Matches); err != nil {
		return err
	}
	if err := line.addComment(r.Comment); err != nil {
		return err
	}
	if err := line.addActions(r.Actions); err != nil {
		return err
	}
	text, limit := strings.Join(line.words, " "), maxWords
	if r.Hits != (rules.Hits{}) {
		text, limit = fmt.Sprintf("[%d:%d] %s", r.Hits.Packets, r.Hits.Bytes, text),
			maxWords-counterWords
	}
	if len(line.words) > limit {
		return fmt.Errorf("%d words: iptables-restore takes at most %d", len(line.words), limit)
	}
	p.WriteString(text + "\n")
	return nil
}

// A rulePrinter collects the words of a rule.
type rulePrinter struct {
	table *rules.Table
	chain *rules.Chain
	words []string
	// protocol is the only protocol that the rule matches, or 0.
	protocol rules.Protocol
}

// add adds words to the rule.
func (p *rulePrinter) add(words ...string) { p.words = append(p.words, words...) }

// addOption adds an option, with a ! if it is negated.
func (p *rulePrinter) addOption(not bool, words ...string) {
	if not {
		p.add("!")
	}
	p.add(words...)
}
