// Package istiotest loads the rules of Istio's programs, among foreign rules, into namespaces. The
// tests of the removal of Istio's rules use it.
package istiotest

import (
	"embed"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluice-mesh/sluice/rules"
	"github.com/sluice-mesh/sluice/rules/rulestest"
)

//go:embed testdata
var testdata embed.FS

// Variant is a variant of iptables.
type Variant struct {
	program string // follows "iptables-" in the names of its programs, such as iptables-legacy-save
	file    string // the beginning of the names of its golden files
}

// The variants.
var (
	Legacy = Variant{"legacy", "legacy"}
	NFT    = Variant{"nft", "iptnft"}
)

// A Case contains the rules of one run of Istio's programs. IPv4, IPv6 and Tables are empty if
// there are no such rules.
type Case struct {
	Name   string
	IPv4   string // in the format of iptables-save
	IPv6   string
	Tables string // of istio-nftables, in nft's language
}

// Save returns the rules of the family in the format of iptables-save.
func (c Case) Save(f rules.Family) string {
	if f == rules.IPv4 {
		return c.IPv4
	}
	return c.IPv6
}

// Cases returns the cases of this package, and a sample of the recorded rules of Istio's programs
// if there are any (see [rulestest.Sample]). The environment variable SLUICE_GOLDEN names the
// directory of the recordings, by default a directory next to the repository.
func Cases(t testing.TB, v Variant) []Case {
	t.Helper()
	tables := read(t, "nft.txt")
	cases := []Case{
		{"redirect", read(t, "redirect-v4.save"), read(t, "redirect-v6.save"), tables},
		{"tproxy with another mark", read(t, "tproxy-v4.save"), read(t, "tproxy-v6.save"), ""},
		{"only istio-nftables", "", "", tables},
		{"nothing", "", "", ""},
	}
	golden := os.Getenv("SLUICE_GOLDEN")
	if golden == "" {
		golden = "../../shared/golden"
	}
	dirs, err := filepath.Glob(filepath.Join(golden, "[0-9]*-*"))
	if err != nil {
		t.Fatal(err)
	}
	var recorded []Case
	seen := map[Case]bool{}
	for _, dir := range dirs {
		file := func(name string) string {
			text, err := os.ReadFile(filepath.Join(dir, name))
			if err != nil {
				t.Fatal(err)
			}
			return string(text)
		}
		c := Case{
			filepath.Base(dir), file(v.file + "-v4.save"), file(v.file + "-v6.save"),
			file("nft.txt"),
		}
		// Skip duplicates: many parameters have the same result.
		if key := (Case{IPv4: c.IPv4, IPv6: c.IPv6, Tables: c.Tables}); !seen[key] {
			seen[key] = true
			recorded = append(recorded, c)
		}
	}
	return append(cases, rulestest.Sample(recorded, os.Getenv)...)
}

// Before returns the foreign rules that are loaded before Istio's rules. They include rules that
// resemble Istio's rules, and all matches and targets whose restoration is error-prone.
func Before(t testing.TB, f rules.Family) string {
	t.Helper()
	return read(t, "before-"+fileName(f))
}

// After returns the foreign rules that are loaded after Istio's rules. Like [Before], they
// include rules that resemble Istio's rules.
func After(t testing.TB, f rules.Family) string {
	t.Helper()
	return read(t, "after-"+fileName(f))
}

func fileName(f rules.Family) string {
	return map[rules.Family]string{rules.IPv4: "v4.save", rules.IPv6: "v6.save"}[f]
}

// read returns the content of a file of the test data.
func read(t testing.TB, name string) string {
	t.Helper()
	text, err := testdata.ReadFile("testdata/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// withoutIstio removes Istio's rules and chains from the rules of a [Case]. All rules of a case are
// Istio's.
func withoutIstio(save string) string {
	var lines []string
	for line := range strings.Lines(save) {
		if !strings.HasPrefix(line, "-") && !strings.HasPrefix(line, ":ISTIO_") {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, "")
}
