package save_test

import (
	"net/netip"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"go4.org/netipx"

	"github.com/sluice-mesh/sluice/rules"
)

// exportAll makes cmp compare unexported fields of addresses. Package xt tests the inputs of
// unknown matches.
var exportAll = cmp.Options{
	cmp.Comparer(func(a, b netip.Addr) bool { return a == b }),
	cmp.Comparer(func(a, b netipx.IPRange) bool { return a == b }),
	cmpopts.IgnoreFields(rules.Unknown{}, "Ignores"),
}
