package chain_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-mesh/sluice/install/chain"
)

func TestMentions(t *testing.T) {
	for name, row := range map[string]struct {
		data string
		want []string
	}{
		"the types of a chain, each once": {
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
		"no type in invalid JSON":                                 {`type: bridge`, nil},
		"no type in a value that is neither an object nor a list": {`"type"`, nil},
	} {
		if diff := cmp.Diff(row.want, chain.Mentions([]byte(row.data))); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}
