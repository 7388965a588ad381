package save

import "strings"

// A word is an argument of a command, as iptables-restore splits a line into arguments.
type word struct {
	text   string // without quotes and escapes
	raw    string // as written
	column int    // the position of the first byte of the word in the line, from 1
}

// is reports whether the word was written exactly like the text, without quotes.
func (w word) is(text string) bool { return w.raw == text }

// isOption reports whether the word looks like an option. A quoted word is a value.
func (w word) isOption() bool { return len(w.raw) > 1 && w.raw[0] == '-' }

// blanks contains the characters that separate words.
const blanks = " \t\r"

// splitWords splits a line at blanks and after closing quotes, and appends the words. Blanks in
// double quotes do not split, and within quotes a backslash escapes the next byte
// (add_param_to_argv in iptables' xshared.c). If a quote is not closed, openQuote is the position
// of the quote, counted from 1. Otherwise openQuote is 0.
func splitWords(line string, words []word) (_ []word, openQuote int) {
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

// quotedWord parses the word that begins at start and ends with a quoted part. end is the index
// after the word. If a quote is not closed, end is -1, and the column of the word is the position
// of the quote.
func quotedWord(line string, start int) (w word, end int) {
	var text strings.Builder
	quote := -1 // the index of the open quote
	for i := start; i < len(line); i++ {
		c := line[i]
		switch {
		case c == '"' && quote < 0:
			quote = i
		case c == '"':
			return word{text.String(), line[start : i+1], start + 1}, i + 1
		case quote >= 0 && c == '\\' && i+1 < len(line):
			i++
			text.WriteByte(line[i])
		default:
			text.WriteByte(c)
		}
	}
	return word{column: quote + 1}, -1
}

// rawText returns the words as written, separated by single blanks.
func rawText(words []word) string {
	texts := make([]string, len(words))
	for i, w := range words {
		texts[i] = w.raw
	}
	return strings.Join(texts, " ")
}
