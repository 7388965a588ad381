package rules_test

import (
	"bytes"
	"encoding/json"
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

func TestPrintableJSONHasTheSameMeaning(t *testing.T) {
	const text = "{\"a\u009b31m\u202e\u007fß\": \"\U000e0001\"}\n"
	const want = `{"a\u009b31m\u202e\u007fß": "\udb40\udc01"}` + "\n"
	if got := rules.PrintableJSON([]byte(text)); string(got) != want {
		t.Errorf("got %q, want %q", got, want)
	}
	rapid.Check(t, func(t *rapid.T) {
		from := rapid.String().Draw(t, "text")
		encoded, err := json.Marshal(from)
		if err != nil {
			t.Fatal(err)
		}
		var to, before string
		text := rules.PrintableJSON(encoded)
		if err := json.Unmarshal(encoded, &before); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(text, &to); err != nil || to != before {
			t.Errorf("%s: meaning %q, error %v, want %q", text, to, err, before)
		}
		if bytes.ContainsFunc(text, func(c rune) bool { return !unicode.IsPrint(c) }) {
			t.Errorf("%q is not printable", text)
		}
	})
}
