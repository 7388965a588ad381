package save_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/sluice-mesh/sluice/compat/save"
	"github.com/sluice-mesh/sluice/rules"
)

// manyRules returns a text with n rules, as in a mesh with n excluded prefixes.
func manyRules(n int) string {
	var b strings.Builder
	b.WriteString("*nat\n:ISTIO_OUTPUT - [0:0]\n")
	for i := range n {
		fmt.Fprintf(&b,
			"[12:3456] -A ISTIO_OUTPUT ! -d 10.%d.%d.0/24 -o lo -p tcp -m tcp --dport 443 -m owner --uid-owner 1337 -j RETURN\n", i>>8, i&0xff)
	}
	b.WriteString("COMMIT\n")
	return b.String()
}

func BenchmarkParse10000Rules(b *testing.B) {
	text := manyRules(10000)
	for b.Loop() {
		if _, err := save.Parse(rules.IPv4, "f", strings.NewReader(text)); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkPrint10000Rules(b *testing.B) {
	tables := parse(b, rules.IPv4, manyRules(10000))
	for b.Loop() {
		if err := save.Print(&strings.Builder{}, tables); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkParseCommands parses texts of up to about 1 MiB, with many commands or long lists of
// addresses.
func BenchmarkParseCommands(b *testing.B) {
	const size = 1 << 19
	repeat := func(format string) string {
		var text strings.Builder
		for i := 0; text.Len() < size; i++ {
			fmt.Fprintf(&text, format, i)
		}
		return text.String()
	}
	lists := "-A INPUT -s " + addresses(64, 10) + " -d " + addresses(64, 20) + "\n"
	for name, text := range map[string]string{
		"chains": repeat("-N c%d\n") + repeat("-X c%d\n"),
		"rules": repeat(
			"-A INPUT -m mark --mark %d\n") + repeat("-D INPUT -m mark --mark %d\n"),
		"inserts":   repeat("-I INPUT -m mark --mark %d\n"),
		"addresses": strings.Repeat(lists, 60),
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := save.Parse(rules.IPv4, "f", strings.NewReader("*filter\n"+text+
					"COMMIT\n")); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
