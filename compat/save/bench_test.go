package save_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/sluice-mesh/sluice/compat/save"
	"github.com/sluice-mesh/sluice/rules"
)

// manyRules is a text with as many rules as a mesh with so many excluded prefixes has.
func manyRules(n int) string {
	var b strings.Builder
	b.WriteString("*nat\n:ISTIO_OUTPUT - [0:0]\n")
	for i := range n {
		fmt.Fprintf(&b, "[12:3456] -A ISTIO_OUTPUT ! -d 10.%d.%d.0/24 -o lo -p tcp -m tcp --dport 443 -m owner --uid-owner 1337 -j RETURN\n", i>>8, i&0xff)
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
