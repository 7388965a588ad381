package istio_test

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-mesh/sluice/e2e/istio/matrix"
)

// excludedFlags maps each flag that the matrix does not vary to the reason.
var excludedFlags = map[string]string{
	"--help":            "prints help",
	"--native-nftables": "used with every configuration",
	"--run-validation":  "opens connections, and changes no rules",
}

// TestMatrixVariesEveryFlag compares the matrix with the flags in istio-iptables' help.
func TestMatrixVariesEveryFlag(t *testing.T) {
	all := matrix.Single()
	help, err := program(t, istioIptables).Run(newPod(t, all[0].Pod), all[0], "--help")
	if err != nil {
		t.Fatal(err)
	}
	flags := regexp.MustCompile(`--[a-z][a-z-]+`).FindAllString(help.Output, -1)
	if len(flags) < 30 {
		t.Fatalf("istio-iptables' help has %d flags, want at least 30:\n%s", len(flags), help.Output)
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
		if _, ok := excludedFlags[flag]; ok == (len(values) > 1) {
			t.Errorf("%s: %d values in the matrix, excluded: %t, want an excluded flag or several values",
				flag, len(values), ok)
		}
	}
}
