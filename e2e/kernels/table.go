package kernels

import (
	"fmt"
	"slices"
	"strings"

	"github.com/sluice-mesh/sluice/compat"
)

// introduction is the text before the table.
const introduction = "Debian's kernels for clouds, each with all of its modules and without those of one backend, booted under qemu by " +
	"`make e2e-kernels`; there run the\ntests of the backends that ask the kernel, real connections included:\n\n"

// Table returns the results in Markdown, without times and without what the distribution's updates
// change.
func Table(results []Result) string {
	var text strings.Builder
	text.WriteString(introduction)
	text.WriteString("| Linux | modules | `auto` is | `--backend nft` | `--backend legacy` | besides | tests passed |\n")
	text.WriteString("|---|---|---|---|---|---|---|\n")
	var words []string
	for _, r := range results {
		cell := func(e compat.BackendName) string {
			refusal := r.Refused[e]
			if refusal == "" {
				return "works"
			}
			i := slices.Index(words, refusal)
			if i < 0 {
				i, words = len(words), append(words, refusal)
			}
			return "refused " + strings.Repeat("*", i+1)
		}
		fmt.Fprintf(&text, "| %s, %s | %s | %s | %s | %s | %s | %d of %d |\n", r.Kernel,
			r.Kernel.Release, r.Shape.Name, r.Auto,
			escape(cell(compat.BackendNFT)), escape(cell(compat.BackendLegacy)), r.Facts.besides(),
			r.Passed, r.Tests)
	}
	for i, w := range words {
		fmt.Fprintf(&text, "\n%s `%s`\n", escape(strings.Repeat("*", i+1)), w)
	}
	return text.String()
}

// escape escapes stars, which Markdown would treat as emphasis.
func escape(text string) string { return strings.ReplaceAll(text, "*", `\*`) }

// besides lists the features that are not required.
func (f Facts) besides() string {
	var list []string
	if f.Hooks {
		list = append(list, "list of hooks")
	}
	if f.Destroy {
		list = append(list, "destroy")
	}
	return strings.Join(list, ", ")
}
