package kernels

import (
	"fmt"
	"slices"
	"strings"

	"github.com/sluice-mesh/sluice/compat"
)

// introduction is the text before the table in e2e/README.md.
const introduction = "`make e2e-kernels` boots Debian's cloud kernels under qemu: each kernel with all of its modules, and without the modules of " +
	"one backend. It runs\nthe tests of the backends whose results depend on the kernel, including those with real connections:\n\n"

// Table returns the results in Markdown, without times and patch versions.
func Table(results []Result) string {
	var text strings.Builder
	text.WriteString(introduction)
	text.WriteString("| Linux | modules | `--backend auto` chooses | `--backend nft` | `--backend legacy` | optional features | tests passed |\n")
	text.WriteString("|---|---|---|---|---|---|---|\n")
	var messages []string
	for _, r := range results {
		cell := func(e compat.BackendName) string {
			rejection := r.Refused[e]
			if rejection == "" {
				return "works"
			}
			i := slices.Index(messages, rejection)
			if i < 0 {
				i, messages = len(messages), append(messages, rejection)
			}
			return "rejected " + strings.Repeat("*", i+1)
		}
		fmt.Fprintf(&text, "| %s, %s | %s | %s | %s | %s | %s | %d of %d |\n", r.Kernel,
			r.Kernel.Release, r.Shape.Name, r.Auto,
			escape(cell(compat.BackendNFT)), escape(cell(compat.BackendLegacy)), r.Facts.optional(),
			r.Passed, r.Tests)
	}
	for i, m := range messages {
		fmt.Fprintf(&text, "\n%s `%s`\n", escape(strings.Repeat("*", i+1)), m)
	}
	return text.String()
}

// escape escapes asterisks, which Markdown treats as emphasis.
func escape(text string) string { return strings.ReplaceAll(text, "*", `\*`) }

// optional lists the features that are not required.
func (f Facts) optional() string {
	var list []string
	if f.Hooks {
		list = append(list, "list of hooks")
	}
	if f.Destroy {
		list = append(list, "destroy")
	}
	return strings.Join(list, ", ")
}
