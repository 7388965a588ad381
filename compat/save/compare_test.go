package save_test

import (
	"net/netip"

	"github.com/google/go-cmp/cmp"
	"go4.org/netipx"
)

// exportAll lets cmp compare addresses.
var exportAll = cmp.Options{
	cmp.Comparer(func(a, b netip.Addr) bool { return a == b }),
	cmp.Comparer(func(a, b netipx.IPRange) bool { return a == b }),
}
