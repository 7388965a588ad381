package ztunnel

import (
	"strings"
	"testing"
	"unicode/utf8"
)

// FuzzAck checks that the error in an acknowledgement is short and printable, and that invalid
// acknowledgements have none.
func FuzzAck(f *testing.F) {
	f.Add([]byte{0x0a, 0x00})
	f.Add([]byte{0x0a, 0x04, 0x0a, 0x02, 'n', 'o'})
	f.Add([]byte{0x0a, 0x04, 0x0a, 0x02, 'n', '\n'})
	f.Add([]byte{0xff})
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, data []byte) {
		text, err := decodeAck(data)
		if err != nil && text != "" {
			t.Errorf("text %q with error %v, want no text with an error", text, err)
		}
		if len(text) > maxError || strings.ContainsAny(text, "\r\n\x00") || !utf8.ValidString(text) {
			t.Errorf("text %q is too long or not printable", text)
		}
	})
}
