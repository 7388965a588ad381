package save

import (
	"encoding/json"
	"regexp"
	"strings"
)

// A logEntry is a message of the log with its level.
type logEntry struct {
	level string // in lower case
	lines []textLine
}

// title is the first line of the message.
func (e *logEntry) title() string { return strings.TrimRight(e.lines[0].text, blanks) }

// message is the whole of it.
func (e *logEntry) message() string {
	texts := make([]string, len(e.lines))
	for i, l := range e.lines {
		texts[i] = l.text
	}
	return strings.Join(texts, "\n")
}

// The beginnings of lines: what kubectl puts before each, and what Istio's log does before the first of a message. The scope and
// the place in the source are there if the log's options ask for them.
const (
	kubectlPrefix = `^(?:\[pod/[^\]]*\] )?(?:\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:\d\d) )?`
	entryPrefix   = `^(?:\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?Z\t)?(debug|info|warn|error|fatal)\t(?:[^\t]*\t)*`
)

// logEntries takes the log apart. Lines before the first entry are the end of one that is not there.
func logEntries(log string) []logEntry {
	byKubectl, byIstio := regexp.MustCompile(kubectlPrefix), regexp.MustCompile(entryPrefix)
	var entries []logEntry
	number := 0
	for line := range strings.Lines(log) {
		number++
		line = strings.TrimRight(line, "\r\n")
		before := len(byKubectl.FindString(line))
		text := line[before:]
		if level, message, ok := jsonEntry(text); ok {
			e := logEntry{level: level}
			for line := range strings.SplitSeq(message, "\n") {
				e.lines = append(e.lines, textLine{number: number, text: line, before: -1})
			}
			entries = append(entries, e)
			continue
		}
		if prefix := byIstio.FindStringSubmatch(text); prefix != nil {
			first := textLine{number: number, text: text[len(prefix[0]):], before: before + len(prefix[0])}
			entries = append(entries, logEntry{level: prefix[1], lines: []textLine{first}})
			continue
		}
		if len(entries) > 0 {
			last := &entries[len(entries)-1]
			last.lines = append(last.lines, textLine{number: number, text: text, before: before})
		}
	}
	return entries
}

// jsonEntry reads an entry of Istio's JSON format, or of its variant for Stackdriver.
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
