package compat_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/sluice-mesh/sluice/compat/save"
	"github.com/sluice-mesh/sluice/nft/istio/istiotest"
	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
	"github.com/sluice-mesh/sluice/rules"
	"github.com/sluice-mesh/sluice/rules/diff"
)

// anyDraw returns a match that depends on chance or on earlier packets.
func anyDraw(r *rand.Rand) string {
	number := func(most int) int { return 1 + r.IntN(most) }
	draw := func(from ...string) string { return from[r.IntN(len(from))] }
	not := draw("", "! ")
	switch r.IntN(4) {
	case 0:
		return fmt.Sprintf("-m limit --limit %d/%s", number(10000), draw("second", "sec", "s"))
	case 1:
		return fmt.Sprintf("-m limit --limit %d/%s --limit-burst %d", number(200),
			draw("second", "minute", "hour", "day"), number(10000))
	case 2:
		return fmt.Sprintf("-m statistic --mode random %s--probability %.*f", not, number(11),
			r.Float64())
	}
	every := number(1000)
	return fmt.Sprintf("-m statistic --mode nth %s--every %d --packet %d", not, every,
		r.IntN(every))
}

// TestSavedRandomMatchesEqualTheKernelsMatches loads rules with random matches, and compares the
// output of iptables-save with the rules in the kernel. The model must give a random match the same
// result, whether it read the rule from text or from the kernel.
func TestSavedRandomMatchesEqualTheKernelsMatches(t *testing.T) {
	const programs, size = 10, 12
	for seed := range uint64(programs) {
		r := rand.New(rand.NewPCG(seed, 16))
		f := istiotest.Families[seed%2]
		text := "*mangle\n:PREROUTING ACCEPT [0:0]\n"
		for i := range size {
			header := []string{"", "-p tcp ", "-p udp -m udp --dport 53 ", "-m mark --mark 0x1 "}[r.IntN(4)]
			if r.IntN(3) == 0 {
				header += anyDraw(r) + " "
			}
			text += fmt.Sprintf("[0:0] -A PREROUTING %s%s -j MARK --set-xmark 0x%x/0xff\n", header,
				anyDraw(r), i+1)
		}
		text += "COMMIT\n"
		ns := netnstest.New(t)
		istiotest.Restore(t, ns, istiotest.Legacy, f, text)
		saved := istiotest.Save(t, ns, istiotest.Legacy, f)
		held := rules.Ruleset{Tables: tableReaders()[istiotest.Legacy](ns)}
		for name, printed := range map[string]string{"as saved": saved, "as written": text} {
			tables, err := save.Parse(f, "text", strings.NewReader(printed))
			if err != nil {
				t.Fatal(err)
			}
			result := diff.Decide(diff.Side{Ruleset: rules.Ruleset{Tables: tables}},
				diff.Side{Ruleset: held}, diff.Options{Families: []rules.Family{f}})
			if got := result.Verdict(true); got != diff.Equivalent {
				t.Errorf("seed %d, %s: %s\n%s\n%s", seed, name, got, printed, held)
			}
		}
	}
}
