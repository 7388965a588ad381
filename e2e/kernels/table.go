package kernels

import (
	"fmt"
	"slices"
	"strings"

	"github.com/sluice-mesh/sluice/compat"
)

// introduction is the text before the table in e2e/README.md.
const introduction = "`make e2e-kernels` boots Debian's cloud kernels under qemu. " +
	"Each kernel boots with all modules, and\n" +
	"without the modules of one backend. On each, `make e2e-kernels` runs the backends' tests " +
	"that\n" +
	"depend on the kernel, including tests with real connections:\n\n"

// Table returns the results in Markdown, without times and patch versions.
func Table(results []Result) string {
	var text strings.Builder
	text.WriteString(introduction)
	text.WriteString("| Linux | modules | `--backend auto` chooses | `--backend nft` | " +
		"`--backend legacy` | optional features | tests passed |\n|---|---|---|---|---|---|---|\n")
	var refusals []string // in the order of their footnotes
	for _, r := range results {
		cell := func(backend compat.BackendName) string {
			refusal := r.Refused[backend]
			if refusal == "" {
				return "works"
			}
			i := slices.Index(refusals, refusal)
			if i < 0 {
				i, refusals = len(refusals), append(refusals, refusal)
			}
			return "rejected " + strings.Repeat("*", i+1)
		}
		fmt.Fprintf(&text, "| %s, %s | %s | %s | %s | %s | %s | %d of %d |\n", r.Kernel,
			r.Kernel.Release, r.Modules.Name, r.Auto,
			escape(cell(compat.BackendNFT)), escape(cell(compat.BackendLegacy)), r.Facts.optional(),
			r.Passed, r.Tests)
	}
	for i, refusal := range refusals {
		fmt.Fprintf(&text, "\n%s `%s`\n", escape(strings.Repeat("*", i+1)), refusal)
	}
	return text.String()
}

// escape escapes asterisks, which Markdown treats as emphasis.
func escape(text string) string { return strings.ReplaceAll(text, "*", `\*`) }

// optional returns the names of the optional features that the kernel has.
func (f Facts) optional() string {
	var names []string
	if f.Hooks {
		names = append(names, "list of hooks")
	}
	if f.Destroy {
		names = append(names, "destroy")
	}
	return strings.Join(names, ", ")
}
