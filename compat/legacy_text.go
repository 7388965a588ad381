package compat

import (
	"fmt"
	"slices"
	"strings"

	"github.com/sluice-mesh/sluice/compat/save"
	"github.com/sluice-mesh/sluice/rules"
)

// SaveText returns the rules that the legacy backend writes to an empty namespace, in the format of
// iptables-save. A comment before the rules of each family names the program that loads them.
func SaveText(l Legacy) (string, error) {
	text := new(strings.Builder)
	for _, f := range families {
		tables := slices.DeleteFunc(slices.Clone(l.Tables), func(t rules.Table) bool {
			return t.Family != f
		})
		if len(tables) == 0 {
			continue
		}
		fmt.Fprintf(text, "# IPv%d: %stables-restore --noflush\n", f, f)
		if err := save.Print(text, tables); err != nil {
			return "", err
		}
	}
	return text.String(), nil
}
