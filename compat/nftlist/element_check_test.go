package nftlist_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/sluice-mesh/sluice/compat/nftlist"
)

// TestInvalidElementsOfSets verifies that an element which the type of its set does not allow is an
// error that names the set, the element and the allowed elements.
func TestInvalidElementsOfSets(t *testing.T) {
	const (
		v4, v6  = `"ipv4_addr"`, `"ipv6_addr"`
		pair    = `["ipv4_addr","inet_service"]`
		addr    = "an IPv4 address, a prefix, or a range of addresses, as nft lists them without -N"
		addr6   = "an IPv6 address, a prefix, or a range of addresses, as nft lists them without -N"
		port    = "a port (0-65535), or a range of ports"
		aMap    = `,"map":"mark"`
		notRead = `{"typeof":{"payload":{"protocol":"ip","field":"saddr"}}}`
	)
	for _, tc := range []struct {
		setType, elements string
		invalid, allowed  string // empty if the elements are valid
	}{
		{v4, `"10.0.0.1",{"elem":{"val":"10.0.0.2","timeout":5}}`, "", ""},
		{v4, `{"prefix":{"addr":"10.0.0.0","len":8}},{"range":["11.0.0.1","11.0.0.1"]},"*"`, "", ""},
		{v4, `"10.0.0.1","300.0.0.1"`, `"300.0.0.1"`, addr},
		{v4, `{"elem":{"val":"example.org","timeout":5}}`, `"example.org"`, addr},
		{v4, `"fd00::1"`, `"fd00::1"`, addr},
		{v4, `5`, `5`, addr},
		{v4, `null`, `null`, addr},
		{v4, `-1`, `-1`, addr},
		{
			v4, `{"prefix":{"addr":"10.0.0.0","len":33}}`, `{"prefix":{"addr":"10.0.0.0","len":33}}`,
			addr,
		},
		{v4, `{"range":["11.0.0.2","11.0.0.1"]}`, `{"range":["11.0.0.2","11.0.0.1"]}`, addr},
		{v4, `{"range":["11.0.0.2","x"]}`, `{"range":["11.0.0.2","x"]}`, addr},
		{v4, `{"unknown":5}`, "", ""},
		{v6, `"fd00::1",{"prefix":{"addr":"fd00::","len":8}}`, "", ""},
		{v6, `"10.0.0.1"`, `"10.0.0.1"`, addr6},
		{v4 + aMap, `["10.0.0.1",5]`, "", ""},
		{v4 + aMap, `["10.0.0",5]`, `"10.0.0"`, addr},
		{pair, `{"concat":["10.0.0.1",80]},{"concat":["10.0.0.1","http"]}`, "", ""},
		{pair, `{"concat":["10.0.0.1",{"range":[80,"http"]}]}`, "", ""},
		{pair, `{"concat":["10.0.0.1",65536]}`, "65536", port},
		{pair, `{"concat":["10.0.0.1",{"range":[90,80]}]}`, `{"range":[90,80]}`, port},
		{pair, `{"concat":["10.0.0.x",80]}`, `"10.0.0.x"`, addr},
		{pair, `"` + strings.Repeat("x", 100) + `"`, "", ""},
		{`"ether_addr"`, `"x"`, "", ""},
		{notRead, `"x"`, "", ""},
		{v4, `"` + strings.Repeat("x", 100) + `"`, `"` + strings.Repeat("x", 39) + "...", addr},
	} {
		_, err := nftlist.Parse("file", strings.NewReader(fmt.Sprintf(
			`{"nftables":[{"table":{"family":"ip","name":"t"}},`+
				`{"set":{"family":"ip","table":"t","name":"s","type":%s,"elem":[%s]}}]}`,
			tc.setType, tc.elements)))
		want := fmt.Sprintf("file: object 2, set: ip t s: element %s is not %s", tc.invalid, tc.allowed)
		if tc.invalid == "" {
			want = "<nil>"
		}
		if got := fmt.Sprint(err); got != want {
			t.Errorf("elements %s of type %s:\n%s, want\n%s", tc.elements, tc.setType, got, want)
		}
	}
}
