package compat

import (
	"errors"
	"fmt"

	"github.com/sluice-mesh/sluice/compat/xtables"
	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/rules"
)

// ReadTables returns all tables of iptables-legacy that the namespace (nil: the current one) has, every owner's, IPv4's first. What the
// model has no word for is [rules.Unknown]. When a table cannot be read, the error says so beside the others. It creates none, and needs
// what [xtables.Tables] and [xtables.Read] need.
func ReadTables(ns *netns.NS) ([]rules.Table, error) {
	ids, err := xtables.Tables(ns)
	if err != nil {
		return nil, fmt.Errorf("read iptables-legacy: %w", err)
	}
	var tables []rules.Table
	var faults []error
	for _, id := range ids {
		t, err := xtables.Read(ns, id.Family, id.Name)
		if err != nil {
			faults = append(faults, err)
			continue
		}
		tables = append(tables, *decode(t))
	}
	return tables, errors.Join(faults...)
}
