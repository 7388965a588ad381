package parameter

import (
	"iter"
	"strings"

	"github.com/sluice-mesh/sluice/rules"
)

// A Kind is the type of a parameter's value.
type Kind uint8

// The kinds.
const (
	Port         Kind = iota
	OptionalPort      // a port, or 0 for none
	Ports
	PortSelection // Ports, or "*" for all
	Prefixes
	PrefixSelection // Prefixes, or "*" for all
	LoopbackPrefix
	Interfaces
	IDs
	GroupSelection // IDs, or "*" for all
	Mode
	Mark
	Bool
	UserName
	Server
	PodAddress
	ProbeSourceIPv4
	ProbeSourceIPv6
	Backend
	Deviation // with [Parameter.Repeat]: a list of deviations
)

// Words returns all values of a kind with a fixed set of values, or nil.
func (k Kind) Words() []string {
	switch k {
	case Mode:
		return []string{string(rules.ModeRedirect), string(rules.ModeTProxy)}
	case Bool:
		return []string{"true", "false"}
	case Backend:
		return []string{"auto", "nft", "legacy"}
	case Deviation:
		ids := make([]string, len(rules.Deviations))
		for i, d := range rules.Deviations {
			ids[i] = string(d.ID)
		}
		return ids
	}
	return nil
}

// anyOf returns the words in the form "a, b or c".
func anyOf(words []string) string {
	last := len(words) - 1
	return strings.Join(words[:last], ", ") + " or " + words[last]
}

// AllowedInArgument describes the values that [Parameter.SetFromArgument] accepts. The description
// follows "want" in errors.
func (k Kind) AllowedInArgument() string {
	switch k {
	case Ports:
		return "a list of ports from 0 to 65535 and of ranges such as 8000:9000, separated by commas"
	case Interfaces:
		return "a list of interface names of at most 15 bytes, separated by commas; " +
			"+ or * at the end of a name stands for any rest"
	case PortSelection:
		return allOr + Ports.AllowedInArgument()
	}
	return k.Allowed()
}

// allOr precedes the description of a list if "*" is allowed too.
const allOr = `"*" for all, or `

// Allowed describes the values that an annotation or a configuration may state. The description
// follows "want" in errors.
func (k Kind) Allowed() string {
	switch k {
	case Port:
		return "a port from 1 to 65535"
	case OptionalPort:
		return "a port from 0 to 65535"
	case Ports:
		return "a list of ports from 0 to 65535, separated by commas"
	case Prefixes:
		return "a list of prefixes such as 10.0.0.0/8 or fd00::/8, separated by commas without blanks"
	case LoopbackPrefix:
		return "an IPv4 loopback prefix from /8 to /32, such as 127.0.0.1/32"
	case Interfaces:
		return "a list of interface names, separated by commas: a letter, and up to 14 letters, " +
			"digits, _ . and -"
	case IDs:
		return "a list of numeric ids from 0 to 4294967294, and of ranges of ids, separated by commas"
	case Mode, Bool, Backend:
		return anyOf(k.Words())
	case Deviation:
		return "a list of ids out of " + strings.Join(k.Words(), ", ")
	case Server:
		return "an IP address"
	case ProbeSourceIPv4:
		return rules.AllowedProbeSourceIPv4
	case ProbeSourceIPv6:
		return rules.AllowedProbeSourceIPv6
	case PodAddress:
		return "a unicast IP address that is neither loopback nor link-local"
	case Mark:
		return "a number from 0 to 4294967295, decimal or hexadecimal (0x539)"
	case UserName:
		return "the name of a user"
	}
	return allOr + k.elements().Allowed()
}

// elements returns the kind of the list if the kind allows a list or "*", otherwise the kind
// itself.
func (k Kind) elements() Kind {
	switch k {
	case PortSelection:
		return Ports
	case PrefixSelection:
		return Prefixes
	case GroupSelection:
		return IDs
	}
	return k
}

// isList reports whether the kind allows a list.
func (k Kind) isList() bool {
	switch k.elements() {
	case Ports, Prefixes, Interfaces, IDs:
		return true
	}
	return false
}

// wildcard is the value that selects everything.
const wildcard = "*"

// SetFromAnnotation parses the text in the syntax of the injector's validation (istio.io/istio
// pkg/kube/inject/validate.go) and stores the value, or returns the wrong elements and leaves the
// values unchanged. The syntax is stricter than the syntax of [Parameter.Set]: ranges of ports,
// interface names with a wildcard, and names of users and groups are wrong.
func (p *Parameter) SetFromAnnotation(v *Values, text string) (wrong []string) {
	allowsWildcard := p.Kind != p.Kind.elements()
	isWildcard := text == wildcard && allowsWildcard
	if p.Kind.elements() == Ports {
		text = strings.TrimSpace(text)
	}
	valid := true
	for element := range p.split(text) {
		valid = valid && (isWildcard || p.Kind.injectorAccepts(element))
	}
	if valid && p.set(v, text, Names{}) == nil {
		return nil
	}
	return p.wrongElements(text, p.Kind.injectorAccepts)
}

// SetFromArgument parses the text of an argument or a variable of a pod's container in the syntax
// of [Parameter.Set] and stores the value, or returns the wrong elements and leaves the values
// unchanged. Names of users and groups are wrong (see [Parameter.NamesIn]).
func (p *Parameter) SetFromArgument(v *Values, text string) (wrong []string) {
	if p.set(v, text, Names{}) == nil {
		return nil
	}
	if wrong = p.wrongElements(text, func(string) bool { return true }); wrong == nil {
		return []string{text} // only the combination of the elements is wrong
	}
	return wrong
}

// wrongElements returns the elements for which accepts returns false, or which the parser of the
// parameter rejects.
func (p *Parameter) wrongElements(text string, accepts func(element string) bool) (wrong []string) {
	for element := range p.split(text) {
		if !accepts(element) || p.set(new(Values), element, Names{}) != nil {
			wrong = append(wrong, element)
		}
	}
	return wrong
}

// NamesIn returns the elements of a list of ids that begin like a name of a user or group, with a
// letter or an underscore. If the parameter is no list of ids, the result is empty.
func (p *Parameter) NamesIn(text string) (names []string) {
	if p.Kind.elements() != IDs {
		return nil
	}
	for element := range p.split(text) {
		element = strings.TrimSpace(element)
		if element != "" && (isLetter(element[0]) || element[0] == '_') {
			names = append(names, element)
		}
	}
	return names
}

// split yields the elements of a list, or the text of a value that is not a list.
func (p *Parameter) split(text string) iter.Seq[string] {
	if !p.Kind.isList() {
		return func(yield func(string) bool) { yield(text) }
	}
	if text == "" {
		return func(func(string) bool) {}
	}
	return strings.SplitSeq(text, ",")
}

// injectorAccepts reports whether the injector's syntax allows an element. The parser of the kind
// checks the value.
func (k Kind) injectorAccepts(element string) bool {
	trimmed := strings.TrimSpace(element)
	switch k.elements() {
	case Ports:
		return trimmed != "" && !strings.ContainsAny(trimmed, "-:*")
	case Prefixes:
		return element != "" && element == trimmed && element != wildcard
	case Interfaces:
		return isInterfaceName(trimmed)
	case IDs:
		return trimmed != wildcard
	case Mode:
		return element != "" // an empty text is REDIRECT for istio-iptables only
	}
	return true
}

// isInterfaceName reports whether the injector accepts the name of an interface.
func isInterfaceName(name string) bool {
	const maxLength = 15 // IFNAMSIZ without the terminating zero
	if name == "" || len(name) > maxLength {
		return false
	}
	for i, c := range []byte(name) {
		isAllowed := isLetter(c) || '0' <= c && c <= '9' || c == '_' || c == '.' || c == '-'
		if !isAllowed || i == 0 && !isLetter(c) {
			return false
		}
	}
	return true
}

// isLetter reports whether a character is an ASCII letter.
func isLetter(c byte) bool { return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' }
