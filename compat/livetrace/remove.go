package livetrace

import (
	"errors"

	"github.com/sluice-mesh/sluice/compat"
	"github.com/sluice-mesh/sluice/nft"
	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/nft/trace"
)

// RemoveStale removes the rules of a killed trace from both backends, and reports whether it has
// removed a rule or a table. In nf_tables such rules remain only on a kernel without owner tables,
// because the kernel deletes an owner table with its process. RemoveStale keeps the rules of a
// running trace, and creates no table.
func RemoveStale(ns *netns.NS) (removed bool, err error) {
	table, err := trace.Remove(ns)
	if nft.IsNotSupported(err) {
		err = nil
	}
	chain, legacyErr := compat.UnmarkTraces(ns)
	return table || chain, errors.Join(err, legacyErr)
}
