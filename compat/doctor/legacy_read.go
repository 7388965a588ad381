package doctor

import (
	"errors"
	"io/fs"

	"github.com/sluice-mesh/sluice/compat/xtables"
)

// readLegacyTables returns the existing tables of iptables-legacy and ip6tables-legacy in the
// thread's namespace. Unlike iptables-legacy-save it does not create tables. The error is the error
// of listing the tables. The error of reading a table is in the table's Err.
func readLegacyTables() ([]LegacyTable, error) {
	ids, listErr := xtables.Tables(nil)
	var found []LegacyTable
	for _, id := range ids {
		t := LegacyTable{Family: id.Family, Name: id.Name}
		read, err := xtables.Read(nil, id.Family, id.Name)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			continue
		case err != nil:
			t.Err = err
		default:
			for _, c := range read.Chains {
				if c.Hook == nil {
					t.Chains = append(t.Chains, c.Name)
				}
				t.Rules += len(c.Rules)
			}
		}
		found = append(found, t)
	}
	return found, listErr
}
