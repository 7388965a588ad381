package decide

import (
	"net/netip"
	"strconv"
	"strings"

	"github.com/sluice-mesh/sluice/plugin/text"
	"github.com/sluice-mesh/sluice/rules"
)

// The parsers of this file accept what the injector's validation accepts (istio.io/istio
// pkg/kube/inject/validate.go), and return with the value the elements that are wrong. They are
// stricter than those of package rules, which also read what istio-iptables takes: ranges of ports,
// and interface names that end in a wildcard.

const wildcard = "*"

// What a value may be, for errors. It follows "want".
const (
	portWant        = "a port from 1 to 65535"
	portOrZeroWant  = "a port from 0 to 65535"
	portsWant       = "a list of ports from 0 to 65535, separated by commas"
	portsOrAllWant  = `"*" for all, or ` + portsWant
	cidrsWant       = "a list of prefixes such as 10.0.0.0/8 or fd00::/8, separated by commas without blanks"
	cidrsOrAllWant  = `"*" for all, or ` + cidrsWant
	interfacesWant  = "a list of interface names, separated by commas: a letter, and up to 14 letters, digits, _ . and -"
	idsWant         = "a list of numeric ids from 0 to 4294967294, and of ranges of them, separated by commas"
	groupsOrAllWant = `"*" for all, or ` + idsWant
	modeWant        = "REDIRECT or TPROXY"
	truthWant       = "true or false"
	markWant        = "a number from 0 to 4294967295, decimal or hexadecimal (0x539)"
	loopbackWant    = "an IPv4 loopback prefix from /8 to /32, such as 127.0.0.1/32"
)

// elements parses a list, of which an empty text has no element.
func elements[T any](text string, parse func(string) (T, bool)) (values []T, wrong []string) {
	if text == "" {
		return nil, nil
	}
	for element := range strings.SplitSeq(text, ",") {
		value, ok := parse(element)
		if ok {
			values = append(values, value)
		} else {
			wrong = append(wrong, element)
		}
	}
	return values, wrong
}

func parsePorts(text string) ([]rules.PortRange, []string) {
	ports, wrong := elements(strings.TrimSpace(text), func(element string) (rules.PortRange, bool) {
		n, err := strconv.ParseUint(strings.TrimSpace(element), 10, 16)
		return rules.Single(uint16(n)), err == nil
	})
	return rules.Normalise(ports), wrong
}

func parsePortSelection(text string) (rules.PortSelection, []string) {
	if text == wildcard {
		return rules.PortSelection{All: true}, nil
	}
	ports, wrong := parsePorts(text)
	return rules.PortSelection{Ports: ports}, wrong
}

func parsePrefixes(text string) ([]netip.Prefix, []string) {
	return elements(text, func(element string) (netip.Prefix, bool) {
		p, err := netip.ParsePrefix(element)
		return p, err == nil
	})
}

func parsePrefixSelection(text string) (rules.PrefixSelection, []string) {
	if text == wildcard {
		return rules.PrefixSelection{All: true}, nil
	}
	prefixes, wrong := parsePrefixes(text)
	return rules.PrefixSelection{Prefixes: prefixes}, wrong
}

func parseInterfaces(text string) ([]rules.InterfaceName, []string) {
	return elements(text, func(element string) (rules.InterfaceName, bool) {
		name := strings.TrimSpace(element)
		return rules.InterfaceName{Name: name}, isInterfaceName(name)
	})
}

func isInterfaceName(name string) bool {
	if name == "" || len(name) > 15 {
		return false
	}
	for i, c := range []byte(name) {
		first := 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
		further := first || '0' <= c && c <= '9' || c == '_' || c == '.' || c == '-'
		if !further || i == 0 && !first {
			return false
		}
	}
	return true
}

// parseIDs refuses names, which only the container that istio-init runs in could resolve.
func parseIDs(text string) (ids []rules.IDRange, wrong []string) {
	parsed, wrong := elements(text, func(element string) ([]rules.IDRange, bool) {
		ids, err := rules.ParseIDs(element, nil)
		return ids, err == nil
	})
	for _, list := range parsed {
		ids = append(ids, list...)
	}
	return ids, wrong
}

func parseGroupSelection(text string) (rules.GroupSelection, []string) {
	if text == wildcard {
		return rules.GroupSelection{All: true}, nil
	}
	ids, wrong := parseIDs(text)
	return rules.GroupSelection{IDs: ids}, wrong
}

// parseMode does not take an empty text for REDIRECT: the injector writes a word.
func parseMode(text string) (rules.Mode, []string) {
	if text == "" {
		return "", []string{text}
	}
	return single(rules.ParseMode)(text)
}

func parseStatusPort(text string) (uint16, []string) {
	n, err := strconv.ParseUint(strings.TrimSpace(text), 10, 16)
	if err != nil {
		return 0, []string{text}
	}
	return uint16(n), nil
}

// single makes of a parser of one value one that returns the text if it is wrong.
func single[T any](parse func(string) (T, error)) func(string) (T, []string) {
	return func(text string) (T, []string) {
		value, err := parse(text)
		if err != nil {
			return value, []string{text}
		}
		return value, nil
	}
}

// maxQuoted is how many bytes of a wrong value an error shows.
const maxQuoted = 64

// quote writes a value that a stranger has chosen, in bounded length and on one line.
func quote(value string) string { return text.Quote(value, maxQuoted) }
