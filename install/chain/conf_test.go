package chain_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/containernetworking/cni/libcni"
	"github.com/google/go-cmp/cmp"

	"github.com/sluice-mesh/sluice/install/chain"
)

func TestSinglePluginConfigurationBecomesAList(t *testing.T) {
	for _, row := range []struct{ single, version string }{
		{
			`{"cniVersion":"0.4.0","name":"lab","type":"bridge","ipam":{"type":"host-local"}}`,
			"0.4.0",
		},
		{"\n{\n  \"name\": \"l<a>b\",\n  \"type\": \"ptp\"\n}\n\n", "0.3.1"},
		{`{"cniVersion":"0.2.0","name":"old","type":"ptp"}`, "0.3.1"},
	} {
		list, err := chain.FromSinglePlugin([]byte(row.single))
		if err != nil {
			t.Fatal(err)
		}
		conf, err := libcni.NetworkPluginConfFromBytes([]byte(row.single))
		if err != nil {
			t.Fatal(err)
		}
		libcniList, err := libcni.ConfListFromConf(conf) //nolint:staticcheck // runtimes call this function
		if err != nil {
			t.Fatal(err)
		}
		if list.Name != libcniList.Name || list.CNIVersion != row.version || len(list.Plugins) != 1 {
			t.Errorf("list %+v, want version %s, one plugin, and the name of %+v", list, row.version, libcniList)
		}
		if got := string(list.Plugins[0].Raw); got != strings.TrimSpace(row.single) {
			t.Errorf("the plugin is %q, which differs from the configuration", got)
		}
		if !chain.Equal(list.Plugins[0].Raw, libcniList.Plugins[0].Bytes) {
			t.Errorf("%s differs from libcni's conversion: %s", list.Plugins[0].Raw,
				libcniList.Plugins[0].Bytes)
		}
		with, err := list.Insert(json.RawMessage(element))
		if err != nil {
			t.Fatal(err)
		}
		if !parse(t, string(with)).Has("sluice-cni") {
			t.Errorf("sluice-cni is not in %s", with)
		}
	}
	if _, err := chain.FromSinglePlugin([]byte(lists["one line"])); err == nil {
		t.Error("a list was treated as a single-plugin configuration")
	}
}

func TestListName(t *testing.T) {
	for _, row := range []struct {
		single string
		taken  []string
		want   string
	}{
		{"10-a.conf", nil, "10-a.conflist"},
		{"10-a.json", nil, "10-a.conflist"},
		{"10-a.conf", []string{"10-a.conflist"}, "10-a.conf-sluice.conflist"},
		{
			"10-a.conf",
			[]string{"10-a.conflist", "10-a.conf-sluice.conflist"},
			"10-a.conf--sluice.conflist",
		},
		{"10-a.conf", []string{"10-a.conf-old.conf"}, "10-a.conf--sluice.conflist"},
		{"10-a.conf", []string{"10-a.conflict.conf"}, "10-a.conf-sluice.conflist"},
		{"10-a.json", []string{"10-a.d.conf"}, "10-a.json-sluice.conflist"},
		{"10-a.conf", []string{"10-a.conf+old.conf", "10-a.conflist"}, "10-a.conf-sluice.conflist"},
		{"10-a.conf", []string{"05-a.conf", "10-a.conf", "20-a.conf"}, "10-a.conflist"},
	} {
		got := chain.ListName(row.single, row.taken)
		if got != row.want {
			t.Errorf("%s: %s, want %s", row.single, got, row.want)
		}
		for _, taken := range row.taken {
			// A file before the dash cannot be avoided.
			if taken > row.single && got >= taken && !strings.Contains(taken, "+") {
				t.Errorf("%s sorts after %s, so runtimes would use %[2]s", got, taken)
			}
		}
	}
}

func TestStandalone(t *testing.T) {
	for _, row := range []struct{ element, want string }{
		{
			`{"type":"sluice-cni","plugin_log_level":"info"}`,
			"{\n  \"cniVersion\": \"0.3.1\",\n  \"name\": \"istio-cni\",\n  \"type\": \"sluice-cni\",\n  \"plugin_log_level\": \"info\"\n}\n",
		},
		{
			` { "name":"mine", "type":"sluice-cni" } `,
			"{\n  \"cniVersion\": \"0.3.1\",\n  \"name\": \"mine\",\n  \"type\": \"sluice-cni\"\n}\n",
		},
		{
			`{"type":"sluice-cni","cniVersion":"1.0.0","name":"x"}`,
			"{\n  \"type\": \"sluice-cni\",\n  \"cniVersion\": \"1.0.0\",\n  \"name\": \"x\"\n}\n",
		},
	} {
		got, err := chain.Standalone(json.RawMessage(row.element), "0.3.1", "istio-cni")
		if diff := cmp.Diff(row.want, string(got)); diff != "" || err != nil {
			t.Errorf("%s: error %v (-want +got):\n%s", row.element, err, diff)
		}
		if chain.TypeOf(got) != "sluice-cni" {
			t.Errorf("libcni rejects %s", got)
		}
	}
	for _, bad := range []string{``, `[]`, `{}`, `{"type":1}`} {
		if got, err := chain.Standalone(json.RawMessage(bad), "0.3.1", "n"); err == nil {
			t.Errorf("%q became %s, want an error", bad, got)
		}
	}
	if _, err := chain.Standalone(json.RawMessage(`{"type":"a"}`), "0.3.1", ""); err == nil {
		t.Error("a network without a name was accepted")
	}
}
