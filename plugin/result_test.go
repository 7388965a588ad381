package plugin_test

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-mesh/sluice/plugin/config"
)

// results contains previous results in the format of their version.
var results = map[string]string{
	"0.3.0": `{"cniVersion":"0.3.0","interfaces":[{"name":"eth0","sandbox":"/run/netns/x"}],` +
		`"ips":[{"version":"4","interface":0,"address":"10.1.2.3/24","gateway":"10.1.2.1"}],"routes":[{"dst":"0.0.0.0/0"}],"dns":{}}`,
	"1.0.0": `{"cniVersion":"1.0.0","interfaces":[{"name":"eth0","sandbox":"/run/netns/x"}],` +
		`"ips":[{"interface":0,"address":"10.1.2.3/24","gateway":"10.1.2.1"}],"routes":[{"dst":"0.0.0.0/0"}]}`,
}

// resultVersion returns the version in results that has the same format as the given version.
func resultVersion(version string) string {
	if version[0] == '0' {
		return "0.3.0"
	}
	return "1.0.0"
}

// TestResultsAreConverted checks that a result of any version is printed in the version of the
// configuration.
func TestResultsAreConverted(t *testing.T) {
	for _, to := range config.Versions() {
		for _, from := range config.Versions() {
			t.Run(from+" to "+to, func(t *testing.T) {
				env := newTestEnv(t, "plain")
				c := newCall(t, nil)
				c.prevResult = withField(t, results[resultVersion(from)], "cniVersion", from)
				c.stdin = withField(t, c.configuration(), "cniVersion", to)
				got, want := decode(t, env.add(t, c)),
					decode(t, withField(t, results[resultVersion(to)], "cniVersion", to))
				// The empty DNS settings of a result depend on the conversion.
				delete(got, "dns")
				delete(want, "dns")
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("result (-want +got):\n%s", diff)
				}
			})
		}
	}
}

// TestResultsStayUntouched checks that a result with the version of the configuration is printed
// unchanged, including unknown fields. A result without a version gets this version.
func TestResultsStayUntouched(t *testing.T) {
	for _, tc := range []struct{ name, previous, want string }{
		{
			"a result with spaces and unknown fields",
			`{ "future": {"b":1, "a":[2]},  "cniVersion":"1.1.0","ips":[ ] }`,
			`{ "future": {"b":1, "a":[2]},  "cniVersion":"1.1.0","ips":[ ] }`,
		},
		{
			"a result with large numbers", `{"cniVersion":"1.1.0","x":12345678901234567890.10}`,
			`{"cniVersion":"1.1.0","x":12345678901234567890.10}`,
		},
		{
			"a result without a version", `{"x":12345678901234567890.10}`,
			`{"cniVersion":"1.1.0","x":12345678901234567890.10}`,
		},
		{"a null result", `null`, `{"cniVersion":"1.1.0"}`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			env := newTestEnv(t, "plain")
			c := newCall(t, nil)
			c.prevResult = tc.previous
			c.stdin = c.configuration()
			if got := env.add(t, c); got != tc.want {
				t.Errorf("result: %s\nwant %s", got, tc.want)
			}
		})
	}
}

func decode(t *testing.T, text string) map[string]any {
	t.Helper()
	var value map[string]any
	if err := json.Unmarshal([]byte(text), &value); err != nil {
		t.Fatalf("%q: %v", text, err)
	}
	return value
}

// withField returns an object with another value of a field. The other fields keep their values.
func withField(t *testing.T, text, field, value string) string {
	t.Helper()
	fields := map[string]json.RawMessage{}
	if err := json.Unmarshal([]byte(text), &fields); err != nil {
		t.Fatalf("%q: %v", text, err)
	}
	fields[field], _ = json.Marshal(value)
	changed, err := json.Marshal(fields)
	if err != nil {
		t.Fatal(err)
	}
	return string(changed)
}
