package chain_test

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-mesh/sluice/install/chain"
)

func TestMentions(t *testing.T) {
	for name, row := range map[string]struct {
		data string
		want []string // of a, b, bridge, host-local, multus and name
	}{
		"the types of a chain": {
			`{"name":"a","plugins":[{"type":"b"},{"type":"a"},{"type":"b"}]}`, []string{"a", "b"},
		},
		"the type of a single-plugin configuration, and of its delegate": {
			`{"name":"a","type":"bridge","ipam":{"type":"host-local"}}`,
			[]string{"bridge", "host-local"},
		},
		"the types of a copy to which Multus delegates": {
			`{"type":"multus","delegates":[{"plugins":[{"type":"a"}]}]}`, []string{"a", "multus"},
		},
		"a type with a capitalized key": {
			`{"Type":"bridge"}`, []string{"bridge"},
		},
		"no type in a value that is not a name": {
			`{"name":"a","type":{"to":"a"},"plugins":[{"type":1},{"type":""}]}`, nil,
		},
		"quoted names in invalid JSON": {
			`{"name":"a","plugins":[{"type": "bridge"},]}`, []string{"a", "bridge", "name"},
		},
		"quoted names after the end":                              {`{}"a"`, []string{"a"}},
		"no part of a name in invalid JSON":                       {`{"type":"bridge-2","a`, nil},
		"no unquoted name in invalid JSON":                        {`type: bridge`, nil},
		"no type in empty text":                                   {``, nil},
		"no type in a value that is neither an object nor a list": {`"a"`, nil},
	} {
		got := slices.DeleteFunc([]string{"a", "b", "bridge", "host-local", "multus", "name"},
			func(plugin string) bool { return !chain.Mentions([]byte(row.data), plugin) })
		if len(got) == 0 {
			got = nil
		}
		if diff := cmp.Diff(row.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}
