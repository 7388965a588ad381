package istio_test

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-mesh/sluice/e2e/istio/matrix"
)

// elsewhere contains the flags that the matrix need not vary, with the reason.
var elsewhere = map[string]string{
	"--help":            "does nothing",
	"--native-nftables": "every configuration is run with and without",
	"--run-validation":  "opens connections, and makes no rule",
}

// TestMatrixVariesEveryFlag asks the real program for its flags.
func TestMatrixVariesEveryFlag(t *testing.T) {
	all := matrix.Alone()
	help, err := program(t, istioIptables).Run(newPod(t, all[0].Pod), all[0], "--help")
	if err != nil {
		t.Fatal(err)
	}
	flags := regexp.MustCompile(`--[a-z][a-z-]+`).FindAllString(help.Output, -1)
	if len(flags) < 30 {
		t.Fatalf("only %d flags in\n%s", len(flags), help.Output)
	}
	for _, flag := range flags {
		values := map[string]bool{}
		for _, c := range all {
			i := slices.IndexFunc(c.Args, func(arg string) bool {
				name, _, _ := strings.Cut(arg, "=")
				return name == flag
			})
			if i < 0 {
				values["none"] = true
				continue
			}
			values[c.Args[i]] = true
		}
		if _, ok := elsewhere[flag]; ok == (len(values) > 1) {
			t.Errorf("%s: the matrix has %d values, and a reason to leave it out: %t", flag,
				len(values), ok)
		}
	}
}
