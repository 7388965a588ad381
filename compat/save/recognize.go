package save

import (
	"encoding/json"
	"regexp"
	"strings"
)

// A textKind is a kind of text that a user may pass instead of the expected text.
type textKind struct {
	name string
	// matches reports whether a text is of the kind. head is the beginning of the text, and first
	// is its first line that is neither blank nor a comment.
	matches func(head, first string) bool
}

// textKinds returns the kinds that LooksLike recognizes. A more specific kind precedes a more
// general one.
func textKinds() []textKind {
	return []textKind{
		{"an empty text", isEmpty},
		{"binary data", contains(`\x00`)},
		{"the output of nft -j list ruleset", jsonWith(`"nftables"`)},
		{"the output of kubectl with -o json", jsonWith(`"apiVersion"`)},
		{"JSON", isJSON},
		{"HTML", contains(`(?i)\A<(!doctype html|html|head|body)\b`)},
		{"XML", contains(`\A<\?xml`)},
		{
			"the log of istio-init",
			contains(`(?m)(Istio iptables (environment|variables)|Istio config):$|` +
				`^Environment:\s+-+$|` + rulesFileTitle),
		},
		{"the output of nft list ruleset", contains(`(?m)^\s*(add )?` +
			`(table (ip|ip6|inet|arp|bridge|netdev) \S+|chain \S+ \S+ \S+|chain \S+) \{`)},
		{"the output of iptables -L", contains(`(?m)^Chain \S+ \((policy |\d+ references)|` +
			`^\s*(num +)?(pkts +bytes +)?target +prot +opt `)},
		{"the output of iptables-save", contains(`(?m)^\* ?(nat|filter|mangle|raw|security)\s*$`)},
		{"the output of iptables -S", contains(`(?m)\A(-[PN] \S+( \S+)?\s*\n)*` +
			`-(P \S+ (ACCEPT|DROP)|N \S+|A \S+.*)\s*$`)},
		{"the output of ipset save", contains(`(?m)^create \S+ (hash|bitmap|list):`)},
		{
			"an error of kubectl",
			contains(`\A(Error from server|error: |Unable to connect to the server)`),
		},
		{"YAML, such as the output of kubectl with -o yaml", contains(`(?m)^(apiVersion|kind): \S`)},
		{"the output of kubectl get", contains(`\A(NAMESPACE +)?NAME +\S`)},
	}
}

// contains returns a function that searches the head for a regular expression.
func contains(expression string) func(head, first string) bool {
	re := regexp.MustCompile(expression)
	return func(head, _ string) bool { return re.MatchString(head) }
}

// isEmpty reports whether the head is empty.
func isEmpty(head, _ string) bool { return head == "" }

// isJSON reports whether the first line is JSON, or the beginning of JSON of several lines.
func isJSON(_, first string) bool {
	return first == "{" || first == "[" || strings.HasPrefix(first, `{"`) ||
		strings.HasPrefix(first, "[") && json.Valid([]byte(first))
}

// jsonWith returns a function that reports whether the text is JSON whose head contains the given
// text.
func jsonWith(text string) func(head, first string) bool {
	return func(head, first string) bool {
		return isJSON(head, first) && strings.Contains(head, text)
	}
}

// maxHead is the number of bytes of a text that LooksLike reads.
const maxHead = 16 << 10

// LooksLike returns the kind of the text as the end of an error message, such as "; this looks like
// JSON". It returns an empty text if it does not recognize the kind.
func LooksLike(text string) string {
	head := strings.ReplaceAll(text[:min(len(text), maxHead)], "\r\n", "\n")
	head = strings.TrimSpace(strings.TrimPrefix(head, "\ufeff"))
	first := head
	for line := range strings.Lines(head) {
		if first = strings.TrimSpace(line); first != "" && first[0] != '#' {
			break
		}
	}
	for _, k := range textKinds() {
		if k.matches(head, first) {
			return "; this looks like " + k.name
		}
	}
	return ""
}

// noTableError returns the error for a text without a table. first is the error for the first line
// that is neither blank nor a comment, or nil if there is no such line.
func noTableError(file, text string, first *SyntaxError) *SyntaxError {
	e := &SyntaxError{File: file, Line: 1, Column: 1}
	if first != nil {
		*e = *first
	}
	e.Want = "the first line of a table, such as *nat, as iptables-save or ip6tables-save prints it" +
		LooksLike(text)
	if strings.TrimSpace(text) == "" {
		e.Want += ", which iptables-save prints only where there are no tables"
	}
	return e
}
