package rules_test

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"go4.org/netipx"

	"github.com/sluice-mesh/sluice/rules"
)

// readSave reads the iptables-save text of one family, as far as istio-init uses it. It shares no code with Sluice's own
// reader, so that the comparison with Istio does not stand on what it is to prove.
func readSave(family rules.Family, text string) ([]rules.Table, error) {
	var tables []rules.Table
	for number, line := range strings.Split(text, "\n") {
		var err error
		switch {
		case line == "" || line == "COMMIT" || line[0] == '#':
		case line[0] == '*':
			tables = append(tables, rules.Table{Family: family, Name: line[1:]})
		case line[0] == ':':
			name, _, _ := strings.Cut(line[1:], " ")
			table := &tables[len(tables)-1]
			table.Chains = append(table.Chains, rules.Chain{Name: name, Base: saveBase(table.Name, name)})
		default:
			err = readSaveRule(&tables[len(tables)-1], line)
		}
		if err != nil {
			return nil, fmt.Errorf("line %d: %q: %w", number+1, line, err)
		}
	}
	return tables, nil
}

// saveBase returns how xtables attaches a built-in chain, nil for another chain.
func saveBase(table, chain string) *rules.Base {
	hooks := map[string]rules.Hook{
		"PREROUTING": rules.Prerouting, "INPUT": rules.Input, "FORWARD": rules.Forward,
		"OUTPUT": rules.Output, "POSTROUTING": rules.Postrouting,
	}
	hook, builtIn := hooks[chain]
	if !builtIn {
		return nil
	}
	base := &rules.Base{Hook: hook}
	switch table {
	case "raw":
		base.Priority = rules.IstioRawPriority
	case "mangle":
		base.Priority = rules.IstioManglePriority
		if hook == rules.Output {
			base.Type = rules.Route
		}
	case "nat":
		base.Priority = rules.IstioNATPriority
		base.Type = rules.NAT
	}
	return base
}

func readSaveRule(table *rules.Table, line string) error {
	w := &saveWords{words: strings.Fields(line)}
	if w.next() != "-A" {
		return fmt.Errorf("not a rule")
	}
	chain := table.Chain(w.next())
	var r rules.Rule
	for len(w.words) > 0 && w.err == nil {
		negated := w.words[0] == "!"
		if negated {
			w.next()
		}
		switch option := w.next(); option {
		case "-j":
			r.Actions = w.target(table)
		case "-m":
			w.module = w.next()
		default:
			r.Matches = append(r.Matches, w.match(option, negated))
		}
	}
	rules.SortMatches(r.Matches)
	chain.Rules = append(chain.Rules, r)
	return w.err
}

// saveWords are the words of a rule that are yet to read.
type saveWords struct {
	words  []string
	module string // the last -m: two modules have an option --mark
	err    error
}

func (w *saveWords) next() string {
	if len(w.words) == 0 {
		w.fail("ends early")
		return ""
	}
	word := w.words[0]
	w.words = w.words[1:]
	return word
}

func (w *saveWords) fail(format string, args ...any) {
	if w.err == nil {
		w.err = fmt.Errorf(format, args...)
	}
}

// number reads a number that fits the bits.
func (w *saveWords) number(text string, bits int) uint64 {
	n, err := strconv.ParseUint(text, 0, bits)
	if err != nil {
		w.fail("%w", err)
	}
	return n
}

const allBits = ^uint32(0)

// mark reads a value and its mask.
func (w *saveWords) mark(text string) (value, mask uint32) {
	a, b, masked := strings.Cut(text, "/")
	value, mask = uint32(w.number(a, 32)), allBits
	if masked {
		mask = uint32(w.number(b, 32))
	}
	return value, mask
}

// owner reads an id or a range of ids.
func (w *saveWords) owner(text string) []rules.IDRange {
	a, b, isRange := strings.Cut(text, "-")
	if !isRange {
		b = a
	}
	return []rules.IDRange{{First: uint32(w.number(a, 32)), Last: uint32(w.number(b, 32))}}
}

func (w *saveWords) match(option string, negated bool) rules.Match {
	switch option {
	case "-s":
		return rules.MatchAddr{Side: rules.Source, Not: negated, Ranges: w.prefix()}
	case "-d":
		return rules.MatchAddr{Side: rules.Destination, Not: negated, Ranges: w.prefix()}
	case "-i", "-o":
		name, prefix := strings.CutSuffix(w.next(), "+")
		return rules.MatchInterface{Out: option == "-o", Not: negated, Names: []rules.InterfaceName{{Name: name, Prefix: prefix}}}
	case "-p":
		p, err := rules.ParseProtocol(w.next())
		if err != nil {
			w.fail("%w", err)
		}
		return rules.MatchProtocol{Not: negated, Protocols: []rules.Protocol{p}}
	case "--dport", "--dports":
		return rules.MatchPort{Side: rules.Destination, Not: negated, Ports: w.ports()}
	case "--sport", "--sports":
		return rules.MatchPort{Side: rules.Source, Not: negated, Ports: w.ports()}
	case "--uid-owner", "--gid-owner":
		return rules.MatchOwner{Group: option == "--gid-owner", Not: negated, Socketless: true, IDs: w.owner(w.next())}
	case "--mark":
		value, mask := w.mark(w.next())
		return rules.MatchMark{Conntrack: w.module == "connmark", Not: negated, Value: value, Mask: mask}
	case "--ctstate":
		return rules.MatchState{Not: negated, States: w.states()}
	}
	w.fail("option %s is not known to this reader", option)
	return nil
}

func (w *saveWords) prefix() []netipx.IPRange {
	p, err := netip.ParsePrefix(w.next())
	if err != nil {
		w.fail("%w", err)
		return nil
	}
	return []netipx.IPRange{netipx.RangeOfPrefix(p)}
}

func (w *saveWords) ports() []rules.PortRange {
	ports, err := rules.ParsePorts(w.next())
	if err != nil {
		w.fail("%w", err)
	}
	return ports
}

func (w *saveWords) states() rules.StateSet {
	names := map[string]rules.State{
		"NEW": rules.New, "ESTABLISHED": rules.Established, "RELATED": rules.Related,
		"INVALID": rules.Invalid, "UNTRACKED": rules.Untracked,
	}
	var set rules.StateSet
	for name := range strings.SplitSeq(w.next(), ",") {
		state, known := names[name]
		if !known {
			w.fail("state %s is not known to this reader", name)
		}
		set |= rules.States(state)
	}
	return set
}

func (w *saveWords) target(table *rules.Table) []rules.Action {
	name := w.next()
	options := map[string]string{}
	for len(w.words) > 0 && w.err == nil {
		option := w.next()
		if option == "--save-mark" || option == "--restore-mark" {
			options[option] = ""
			continue
		}
		options[option] = w.next()
	}
	port := func(option string) uint16 { return uint16(w.number(options[option], 16)) }
	switch name {
	case "ACCEPT":
		return []rules.Action{rules.Accept}
	case "DROP":
		return []rules.Action{rules.Drop}
	case "RETURN":
		return []rules.Action{rules.Return}
	case "REDIRECT":
		return []rules.Action{rules.RedirectTo{Port: port("--to-ports")}}
	case "CT":
		return []rules.Action{rules.SetZone{Zone: port("--zone")}}
	case "MARK":
		value, mask := w.mark(options["--set-xmark"])
		if mask != allBits {
			w.fail("--set-xmark with a mask is exclusive-or, which this reader does not know")
		}
		return []rules.Action{rules.SetMark{Value: value, Mask: mask}}
	case "TPROXY":
		value, mask := w.mark(options["--tproxy-mark"])
		return []rules.Action{rules.TProxyDrop{Port: port("--on-port"), Value: value, Mask: mask}}
	case "CONNMARK":
		if options["--nfmask"] != "0xffffffff" || options["--ctmask"] != "0xffffffff" {
			w.fail("masks of CONNMARK are not known to this reader")
		}
		if _, save := options["--save-mark"]; save {
			return []rules.Action{rules.SaveMark{}}
		}
		return []rules.Action{rules.RestoreMark{}}
	}
	if table.Chain(name) == nil {
		w.fail("target %s is not known to this reader", name)
	}
	return []rules.Action{rules.Jump{Chain: name}}
}
