package save

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"sync"
)

// A logEntry is a message of the log with its level.
type logEntry struct {
	level  string // in lower case; empty in the plain format
	source string // the prefix of kubectl logs --prefix, which names the container, or empty
	lines  []textLine
}

// title returns the first line of the message.
func (e *logEntry) title() string { return strings.TrimRight(e.lines[0].text, blanks) }

// message returns the complete message.
func (e *logEntry) message() string {
	texts := make([]string, len(e.lines))
	for i, l := range e.lines {
		texts[i] = l.text
	}
	return strings.Join(texts, "\n")
}

// linePrefix matches the prefixes that kubectl and container runtimes add to each line. entryPrefix
// matches the prefix of Istio's log before the first line of a message. The scope and the source
// position are optional in this prefix. copiedPrefix matches the same prefix in a text that was
// copied from a terminal, where blanks replace the tabs. Compiling the three patterns takes 0.25
// ms, and most commands read no log. They are therefore compiled at the first use.
var (
	linePrefix = onceCompiled(`^(\[pod/[^\]]*\] )?` +
		`(?:\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:\d\d) (?:std(?:out|err) [FP] )?)?`)
	entryPrefix = onceCompiled(`^(?:\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?Z\t)?` +
		`(debug|info|warn|error|fatal)\t(?:[^\t]*\t)*`)
	copiedPrefix = onceCompiled(`^( *)\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?Z[ \t]+` +
		`(debug|info|warn|error|fatal)[ \t]+`)
)

// onceCompiled returns a function that compiles the expression at the first call.
func onceCompiled(expression string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(expression) })
}

// A logReader splits a log into entries.
type logReader struct {
	entries []logEntry
	// hasLevels is set if an entry with a level has been read. The log is then not in the plain
	// format of old versions.
	hasLevels bool
	// indent is the indentation of entries in a copied log.
	indent int
	// source is the container of the current line, in the form of logEntry.source. last contains
	// the index of the last entry of each container.
	source string
	last   map[string]int
	lines  int // the number of lines in the entries; see maxLogLines
}

// maxLogLines limits the memory for the lines of a log: a line needs up to 100 bytes besides its
// text.
const maxLogLines = 1 << 18

// logEntries splits the log into entries. It drops the lines before the first entry, because these
// lines belong to an incomplete entry.
func logEntries(file, log string) ([]logEntry, error) {
	var r logReader
	for line := range linesOf(log) {
		r.readLine(line)
		if r.lines > maxLogLines {
			return nil, &SyntaxError{
				File: file, Line: line.number, Column: 1, Token: line.text,
				Want: fmt.Sprintf("at most %d lines of entries in a log", maxLogLines),
			}
		}
	}
	return r.entries, nil
}

// readLine adds a line of the log to the entries.
func (r *logReader) readLine(line textLine) {
	if text, ok := dockerLine(line.text); ok {
		line.text, line.before = text, -1
	}
	if line.text == "" {
		r.addLine(line)
		return
	}
	// In a copied log, the time of the entry looks like a prefix of kubectl.
	m := copiedPrefix().FindStringSubmatch(line.text)
	if m != nil && !entryPrefix().MatchString(line.text) {
		r.hasLevels, r.indent = true, len(m[1])
		r.add(m[2], line.skip(len(m[0])))
		return
	}
	prefix := linePrefix().FindStringSubmatch(line.text)
	if prefix != nil {
		r.source, line = prefix[1], line.skip(len(prefix[0]))
	}
	if level, message, ok := jsonEntry(line.text); ok {
		var lines []textLine
		for text := range strings.SplitSeq(message, "\n") {
			lines = append(lines, textLine{number: line.number, text: text, before: -1})
			if len(lines) > maxLogLines {
				break
			}
		}
		r.add(level, lines...)
		r.hasLevels = true
		return
	}
	if m := entryPrefix().FindStringSubmatch(line.text); m != nil {
		r.hasLevels, r.indent = true, 0
		r.add(m[1], line.skip(len(m[0])))
		return
	}
	if level, ok := plainTitle(line.text); ok && !r.hasLevels {
		r.add(level, line)
		return
	}
	r.addLine(line)
}

// addLine adds a line to the last entry of the line's container.
func (r *logReader) addLine(line textLine) {
	if i, ok := r.last[r.source]; ok {
		blank := len(line.text) - len(strings.TrimLeft(line.text, " "))
		e := &r.entries[i]
		e.lines = append(e.lines, line.skip(min(blank, r.indent)))
		r.lines++
	}
}

// add begins an entry.
func (r *logReader) add(level string, lines ...textLine) {
	if r.last == nil {
		r.last = map[string]int{}
	}
	r.last[r.source] = len(r.entries)
	r.lines += len(lines)
	r.entries = append(r.entries, logEntry{level: level, source: r.source, lines: lines})
}

// skip returns the line without its first n bytes.
func (l textLine) skip(n int) textLine {
	l.text = l.text[n:]
	if l.before >= 0 {
		l.before += n
	}
	return l
}

// plainTitle reports whether a line begins an entry of the plain format. In this format,
// istio-iptables prints headings, its commands and their output. The level is "fatal" for an error
// that ends the run, and otherwise empty.
func plainTitle(line string) (level string, ok bool) {
	line = strings.TrimPrefix(line, "+ ")
	if strings.HasPrefix(line, "panic: ") || strings.HasPrefix(line, "Failed to execute: ") {
		return "fatal", true
	}
	program, _, _ := strings.Cut(line, " ")
	switch program {
	case "iptables", "iptables-restore", "iptables-save", "ip", "dump",
		"ip6tables", "ip6tables-restore", "ip6tables-save":
		return "", true
	}
	switch strings.TrimRight(line, blanks) {
	case "Environment:", "Variables:":
		return "", true
	}
	return "", strings.HasPrefix(line, rulesFileTitle)
}

// rulesFileTitle is the prefix of the heading before the input of iptables-restore.
const rulesFileTitle = "Writing following contents to rules file:"

// jsonEntry parses an entry of Istio's JSON format, or of the variant of this format for
// Stackdriver.
func jsonEntry(line string) (level, message string, ok bool) {
	if !strings.HasPrefix(line, "{") || !strings.HasSuffix(line, "}") {
		return "", "", false
	}
	var e struct{ Level, Msg, Severity, Message string }
	if json.Unmarshal([]byte(line), &e) != nil {
		return "", "", false
	}
	level, message = e.Level+e.Severity, e.Msg+e.Message
	return strings.ToLower(level), message, level != ""
}

// dockerLine parses a line of Docker's log files.
func dockerLine(line string) (text string, ok bool) {
	if !strings.HasPrefix(line, `{"log":`) {
		return "", false
	}
	var l struct{ Log *string }
	if json.Unmarshal([]byte(line), &l) != nil || l.Log == nil {
		return "", false
	}
	return strings.TrimRight(*l.Log, "\r\n"), true
}
