package rules_test

import (
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/sluice-mesh/sluice/rules"
)

func TestPrintableIsOneLine(t *testing.T) {
	if got := rules.Printable("a\nb\x1b[1mß"); got != "a b\ufffd[1mß" {
		t.Errorf("printable text %q, want one line with a replaced escape", got)
	}
	rapid.Check(t, func(t *rapid.T) {
		from := rapid.String().Draw(t, "text")
		if i := strings.IndexFunc(rules.Printable(from), func(c rune) bool {
			return !unicode.IsPrint(c) && c != utf8.RuneError
		}); i >= 0 {
			t.Errorf("byte %d of the result of Printable(%q) is not printable", i, from)
		}
	})
}
