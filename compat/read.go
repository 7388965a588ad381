package compat

import (
	"errors"
	"fmt"

	"github.com/sluice-mesh/sluice/compat/xtables"
	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/rules"
)

// ReadTables returns all iptables-legacy tables in the namespace (nil: the current one), IPv4
// first. A match or target that the model does not support becomes [rules.Unknown]. If some tables
// cannot be read, the error names them, and the result contains the other tables. ReadTables
// creates no table. It needs the privileges of [xtables.Tables] and [xtables.Reader.Read], whose
// limit applies to all tables together.
func ReadTables(ns *netns.NS) ([]rules.Table, error) {
	ids, err := xtables.Tables(ns)
	if err != nil {
		return nil, fmt.Errorf("read the iptables-legacy tables: %w", err)
	}
	var tables []rules.Table
	var errs []error
	var r xtables.Reader
	for _, id := range ids {
		t, err := r.Read(ns, id.Family, id.Name)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		tables = append(tables, *decode(t))
	}
	return tables, errors.Join(errs...)
}
