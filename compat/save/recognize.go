package save

import (
	"encoding/json"
	"regexp"
	"strings"
)

// An inputFormat is a format that a user may pass instead of the expected one.
type inputFormat struct {
	name string
	// matches reports whether a text has the format. head is the beginning of the text, and
	// firstLine is its first line that is neither blank nor a comment.
	matches func(head, firstLine string) bool
}

// inputFormats returns the formats that LooksLike recognizes. A more specific format precedes a
// more general one.
func inputFormats() []inputFormat {
	return []inputFormat{
		{"an empty file", isEmpty},
		{"binary data", headMatches(`\x00`)},
		{"the output of nft -j list ruleset", jsonWith(`"nftables"`)},
		{"the output of kubectl with -o json", jsonWith(`"apiVersion"`)},
		{"JSON", isJSON},
		{"HTML", headMatches(`(?i)\A<(!doctype html|html|head|body)\b`)},
		{"XML", headMatches(`\A<\?xml`)},
		{
			"the log of istio-init",
			headMatches(`(?m)(Istio iptables (environment|variables)|Istio config):$|` +
				`^Environment:\s+-+$|` + rulesFileTitle),
		},
		{"the output of nft list ruleset", headMatches(`(?m)^\s*(add )?` +
			`(table (ip|ip6|inet|arp|bridge|netdev) \S+|chain \S+ \S+ \S+|chain \S+) \{`)},
		{"the output of iptables -L", headMatches(`(?m)^Chain \S+ \((policy |\d+ references)|` +
			`^\s*(num +)?(pkts +bytes +)?target +prot +opt `)},
		{
			"the output of iptables-save",
			headMatches(`(?m)^\* ?(nat|filter|mangle|raw|security)\s*$`),
		},
		{"the output of iptables -S", headMatches(`(?m)\A(-[PN] \S+( \S+)?\s*\n)*` +
			`-(P \S+ (ACCEPT|DROP)|N \S+|A \S+.*)\s*$`)},
		{"the output of ipset save", headMatches(`(?m)^create \S+ (hash|bitmap|list):`)},
		{
			"an error of kubectl",
			headMatches(`\A(Error from server|error: |Unable to connect to the server)`),
		},
		{
			"YAML, such as the output of kubectl with -o yaml",
			headMatches(`(?m)^(apiVersion|kind): \S`),
		},
		{"the output of kubectl get", headMatches(`\A(NAMESPACE +)?NAME +\S`)},
	}
}

// headMatches returns a function that reports whether the head matches a regular expression.
func headMatches(expression string) func(head, firstLine string) bool {
	re := regexp.MustCompile(expression)
	return func(head, _ string) bool { return re.MatchString(head) }
}

// isEmpty reports whether the head is empty.
func isEmpty(head, _ string) bool { return head == "" }

// isJSON reports whether the first line is JSON, or the beginning of JSON of several lines.
func isJSON(_, firstLine string) bool {
	return firstLine == "{" || firstLine == "[" || strings.HasPrefix(firstLine, `{"`) ||
		strings.HasPrefix(firstLine, "[") && json.Valid([]byte(firstLine))
}

// jsonWith returns a function that reports whether the text is JSON whose head contains the given
// text.
func jsonWith(text string) func(head, firstLine string) bool {
	return func(head, firstLine string) bool {
		return isJSON(head, firstLine) && strings.Contains(head, text)
	}
}

// maxHead is the number of bytes of a text that LooksLike reads.
const maxHead = 16 << 10

// LooksLike returns the format of the text as the end of an error message, such as "; this looks
// like JSON". It returns an empty text if it does not recognize the format.
func LooksLike(text string) string {
	head := strings.ReplaceAll(text[:min(len(text), maxHead)], "\r\n", "\n")
	head = strings.TrimSpace(strings.TrimPrefix(head, "\ufeff"))
	var firstLine string
	for line := range strings.Lines(head) {
		if firstLine = strings.TrimSpace(line); firstLine != "" && firstLine[0] != '#' {
			break
		}
	}
	for _, f := range inputFormats() {
		if f.matches(head, firstLine) {
			return "; this looks like " + f.name
		}
	}
	return ""
}

// noTableError returns the error for a text without a table. firstErr is the error for the first
// line that is neither blank nor a comment, or nil if there is no such line.
func noTableError(file, text string, firstErr *SyntaxError) *SyntaxError {
	e := &SyntaxError{File: file, Line: 1, Column: 1}
	if firstErr != nil {
		*e = *firstErr
	}
	e.Want = "the first line of a table, such as *nat, as iptables-save or ip6tables-save prints it" +
		LooksLike(text)
	if strings.TrimSpace(text) == "" {
		e.Want += "; iptables-save prints nothing if there are no tables"
	}
	return e
}
