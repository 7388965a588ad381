package compat

import (
	"errors"
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/nft/trace"
	"github.com/sluice-mesh/sluice/rules"
)

// TestMarkFamilies checks that an unsupported family is an error only if the filter selects no
// supported family.
func TestMarkFamilies(t *testing.T) {
	unsupported, denied := error(unix.ENOPROTOOPT), error(unix.EPERM)
	toIPv6 := trace.Filter{To: netip.MustParseAddrPort("[fd00::1]:80")}
	for _, row := range []struct {
		name       string
		filter     trace.Filter
		ipv4, ipv6 error // of mark
		want       error
	}{
		{"both families are marked", trace.Filter{}, nil, nil, nil},
		{"IPv6 is not supported", trace.Filter{}, nil, unsupported, nil},
		{"IPv4 is not supported", trace.Filter{}, unsupported, nil, nil},
		{"no family is supported", trace.Filter{}, unsupported, unsupported, unsupported},
		{"the filter's family is not supported", toIPv6, nil, unsupported, unsupported},
		{"the filter's family is supported", toIPv6, unsupported, nil, nil},
		{"the permission is missing", trace.Filter{}, nil, denied, denied},
	} {
		err := markFamilies(row.filter, func(f rules.Family) error {
			return map[rules.Family]error{rules.IPv4: row.ipv4, rules.IPv6: row.ipv6}[f]
		})
		if !errors.Is(err, row.want) {
			t.Errorf("%s: error %v, want %v", row.name, err, row.want)
		}
	}
}
