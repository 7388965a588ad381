package text_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/sluice-mesh/sluice/plugin/text"
)

func TestTruncate(t *testing.T) {
	for _, row := range []struct {
		name, text string
		maxLen     int
		want       string
	}{
		{"a short text is unchanged", "web", 3, "web"},
		{"a long text ends in an ellipsis", "orders-api", 9, "orders…"},
		{"no character is split", "größer-als", 9, "größ…"},
		{"an empty text is unchanged", "", 3, ""},
	} {
		if got := text.Truncate(row.text, row.maxLen); got != row.want {
			t.Errorf("%s: %q, want %q", row.name, got, row.want)
		}
	}
}

func TestQuote(t *testing.T) {
	for _, row := range []struct {
		text   string
		maxLen int
		want   string
	}{
		{"a\"b\n", 10, `"a\"b\n"`},
		{strings.Repeat("x", 20), 8, `"xxxxx…"`},
	} {
		if got := text.Quote(row.text, row.maxLen); got != row.want {
			t.Errorf("Quote(%q, %d) is %s, want %s", row.text, row.maxLen, got, row.want)
		}
	}
}

func TestEveryMessageFits(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		from, maxLen := rapid.String().Draw(t, "text"), rapid.IntRange(3, 40).Draw(t, "maxLen")
		cut := text.Truncate(from, maxLen)
		if len(cut) > maxLen || utf8.ValidString(from) && !utf8.ValidString(cut) {
			t.Errorf("truncated text %q is longer than %d bytes, or not UTF-8", cut, maxLen)
		}
		if !strings.HasPrefix(from, strings.TrimSuffix(cut, "…")) {
			t.Errorf("%q is not a prefix of %q", cut, from)
		}
	})
}

func TestList(t *testing.T) {
	for _, row := range []struct {
		texts []string
		want  string
	}{
		{nil, ""},
		{[]string{"a", "b"}, "a, b"},
		{[]string{"a", "b", "c", "d"}, "a, b and 2 more"},
	} {
		if got := text.List(row.texts, 2); got != row.want {
			t.Errorf("List(%q, 2) is %q, want %q", row.texts, got, row.want)
		}
	}
}
