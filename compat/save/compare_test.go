package save_test

import (
	"net/netip"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"go4.org/netipx"

	"github.com/sluice-mesh/sluice/rules"
)

// compareOptions makes cmp compare addresses by value, and ignore the inputs of unknown matches,
// which package xt tests.
var compareOptions = cmp.Options{
	cmp.Comparer(func(a, b netip.Addr) bool { return a == b }),
	cmp.Comparer(func(a, b netip.Prefix) bool { return a == b }),
	cmp.Comparer(func(a, b netipx.IPRange) bool { return a == b }),
	cmpopts.IgnoreFields(rules.Unknown{}, "Ignores"),
}
