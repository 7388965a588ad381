package save

import (
	"encoding/json"
	"regexp"
	"strings"
)

// A textKind is a kind of text that may be mistaken for another one.
type textKind struct {
	name string
	// matches reports whether a text is of the kind, by its first lines and by the first line that
	// is not blank and no comment.
	matches func(head, first string) bool
}

// textKinds are the kinds that are recognised, the more special ones first.
func textKinds() []textKind {
	return []textKind{
		{"an empty text, which iptables-save prints only where there are no tables", isEmpty},
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
		{"YAML, as kubectl with -o yaml prints", contains(`(?m)^(apiVersion|kind): \S`)},
		{"the output of kubectl get", contains(`\A(NAMESPACE +)?NAME +\S`)},
	}
}

// contains returns a function that looks for an expression in the first lines of a text.
func contains(expression string) func(head, first string) bool {
	re := regexp.MustCompile(expression)
	return func(head, _ string) bool { return re.MatchString(head) }
}

func isEmpty(head, _ string) bool { return head == "" }

// isJSON reports whether the first line is JSON, or the beginning of a longer text of it.
func isJSON(_, first string) bool {
	return first == "{" || first == "[" || strings.HasPrefix(first, `{"`) ||
		strings.HasPrefix(first, "[") && json.Valid([]byte(first))
}

// jsonWith returns a function that looks for JSON with a text in its first lines.
func jsonWith(text string) func(head, first string) bool {
	return func(head, first string) bool {
		return isJSON(head, first) && strings.Contains(head, text)
	}
}

// maxHead bounds how much of a text is looked at to recognise it, in bytes.
const maxHead = 16 << 10

// LooksLike returns what kind of text it is, as the end of an error; empty if it is of no known
// kind.
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

// notSave returns the error of a text in which no table begins. At is the error of the first line
// that is not blank and no comment, nil if there is no such line.
func notSave(file, text string, position *SyntaxError) *SyntaxError {
	e := &SyntaxError{File: file, Line: 1, Column: 1}
	if position != nil {
		*e = *position
	}
	e.Want = "a table to begin, such as *nat, in text that iptables-save or ip6tables-save prints" +
		LooksLike(text)
	return e
}
