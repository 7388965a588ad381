package config_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/sluice-mesh/sluice/plugin/config"
	"github.com/sluice-mesh/sluice/rules"
)

const pluginEntry = `{"type":"sluice-cni","exclude_namespaces":["kube-system"]}`

func TestParseList(t *testing.T) {
	for _, row := range []struct{ name, text, version, network string }{
		{
			"a list",
			`{"cniVersion":"1.0.0","name":"pods","plugins":[{"type":"bridge"},` + pluginEntry + `]}`,
			"1.0.0", "pods",
		},
		{"only the plugin", pluginEntry, "1.1.0", ""},
		{
			"the plugin with its own version",
			strings.Replace(pluginEntry, "{", `{"cniVersion":"0.3.1",`, 1), "0.3.1", "",
		},
	} {
		c, err := config.ParseList([]byte(row.text))
		if err != nil {
			t.Errorf("%s: %v", row.name, err)
			continue
		}
		if c.CNIVersion != row.version || c.Network != row.network ||
			len(c.Decide.ExcludeNamespaces) != 1 {
			t.Errorf("%s: %+v, want version %s, network %q and one excluded namespace", row.name, c,
				row.version, row.network)
		}
	}
}

func TestInvalidListsAreRejected(t *testing.T) {
	for _, row := range []struct{ name, text, want string }{
		{"input that is not JSON", `plugins:`, "decode the network configuration"},
		{
			"a list without the plugin", `{"plugins":[{"type":"bridge"},{"type":7}]}`,
			"no entry of type sluice-cni",
		},
		{
			"a list with two entries of the plugin", `{"plugins":[` + pluginEntry + "," + pluginEntry + `]}`,
			"more than one entry of type sluice-cni; remove all but one",
		},
		{"plugins that are not a list", `{"plugins":7}`, "plugins: 7 is not a list of objects"},
		{
			"an unsupported version", `{"cniVersion":"9.0.0","plugins":[` + pluginEntry + `]}`,
			`cniVersion: "9.0.0" is not allowed`,
		},
		{
			"an invalid field", `{"type":"sluice-cni","backend":"ebpf"}`,
			`backend: "ebpf" is not allowed`,
		},
	} {
		_, err := config.ParseList([]byte(row.text))
		if err == nil || !strings.Contains(err.Error(), row.want) {
			t.Errorf("%s: %v, want %s", row.name, err, row.want)
		}
	}
}

// FuzzParseList parses arbitrary files: the result is a valid configuration or an error.
func FuzzParseList(f *testing.F) {
	f.Add([]byte(`{"cniVersion":"1.0.0","name":"pods","plugins":[{"type":"bridge"},` + pluginEntry + `]}`))
	f.Add([]byte(pluginEntry))
	f.Add([]byte(`{"plugins":[null]}`))
	f.Add([]byte(`null`))
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := config.ParseList(data)
		var faults rules.Faults
		switch {
		case (c == nil) != (err != nil):
			t.Errorf("configuration %+v and error %v, want exactly one of them", c, err)
		case errors.As(err, &faults) && len(faults) == 0:
			t.Error("the error contains no faults, want at least one")
		}
	})
}
