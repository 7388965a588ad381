package chain_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-mesh/sluice/install/chain"
)

func TestTheTypesThatAConfigurationMentions(t *testing.T) {
	for name, row := range map[string]struct {
		data string
		want []string
	}{
		"those of a chain, each once": {
			`{"name":"a","plugins":[{"type":"b"},{"type":"a"},{"type":"b"}]}`, []string{"a", "b"},
		},
		"that of a plain one, and of what it calls": {
			`{"name":"a","type":"bridge","ipam":{"type":"host-local"}}`,
			[]string{"bridge", "host-local"},
		},
		"those of a copy to which Multus delegates": {
			`{"type":"multus","delegates":[{"plugins":[{"type":"a"}]}]}`, []string{"a", "multus"},
		},
		"that of a key in capitals": {
			`{"Type":"bridge"}`, []string{"bridge"},
		},
		"none in what is no name": {
			`{"name":"a","type":{"to":"a"},"plugins":[{"type":1},{"type":""}]}`, nil,
		},
		"none in what is not JSON":                        {`type: bridge`, nil},
		"none in a value that is neither object nor list": {`"type"`, nil},
	} {
		if diff := cmp.Diff(row.want, chain.Mentions([]byte(row.data))); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}
