package save

import "strings"

// A word is what iptables-restore takes for one argument.
type word struct {
	text   string // without quotes and escapes
	raw    string // as written
	column int    // of its first byte in the line, from 1
}

// is reports whether the word is written so, without quotes.
func (w word) is(text string) bool { return w.raw == text }

// isOption reports whether the word begins like an option. In quotes it is a value.
func (w word) isOption() bool { return len(w.raw) > 1 && w.raw[0] == '-' }

const blanks = " \t\r"

// splitWords cuts a line at its blanks. Double quotes keep blanks together, and inside of them a
// backslash keeps the next byte as it is (add_param_to_argv of iptables' xshared.c). Where a quote
// is not closed it returns the place of the quote, else 0.
func splitWords(line string, words []word) (_ []word, open int) {
	for i := 0; i < len(line); {
		if strings.IndexByte(blanks, line[i]) >= 0 {
			i++
			continue
		}
		end := strings.IndexAny(line[i:], blanks+`"`)
		if end < 0 {
			end = len(line) - i
		}
		if end += i; end == len(line) || line[end] != '"' {
			words = append(words, word{line[i:end], line[i:end], i + 1})
			i = end
			continue
		}
		w, next := quotedWord(line, i)
		if next < 0 {
			return words, w.column
		}
		words = append(words, w)
		i = next
	}
	return words, 0
}

// quotedWord reads a word with quotes in it and returns where it ends; -1, and the place of the
// quote, if a quote is not closed.
func quotedWord(line string, start int) (w word, end int) {
	var text strings.Builder
	open := -1
	for i := start; i < len(line); i++ {
		c := line[i]
		switch {
		case c == '"' && open < 0:
			open = i
		case c == '"':
			open = -1
		case open < 0 && strings.IndexByte(blanks, c) >= 0:
			return word{text.String(), line[start:i], start + 1}, i
		case open >= 0 && c == '\\' && i+1 < len(line):
			i++
			text.WriteByte(line[i])
		default:
			text.WriteByte(c)
		}
	}
	if open >= 0 {
		return word{column: open + 1}, -1
	}
	return word{text.String(), line[start:], start + 1}, len(line)
}

// rawText writes the words as they were, with one blank between them.
func rawText(words []word) string {
	texts := make([]string, len(words))
	for i, w := range words {
		texts[i] = w.raw
	}
	return strings.Join(texts, " ")
}
