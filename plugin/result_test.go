package plugin_test

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-mesh/sluice/plugin/config"
)

// results are previous results, in the form of their version.
var results = map[string]string{
	"0.3.0": `{"cniVersion":"0.3.0","interfaces":[{"name":"eth0","sandbox":"/run/netns/x"}],` +
		`"ips":[{"version":"4","interface":0,"address":"10.1.2.3/24","gateway":"10.1.2.1"}],"routes":[{"dst":"0.0.0.0/0"}],"dns":{}}`,
	"1.0.0": `{"cniVersion":"1.0.0","interfaces":[{"name":"eth0","sandbox":"/run/netns/x"}],` +
		`"ips":[{"interface":0,"address":"10.1.2.3/24","gateway":"10.1.2.1"}],"routes":[{"dst":"0.0.0.0/0"}]}`,
}

// form names the form that results of a version have.
func form(version string) string {
	if version[0] == '0' {
		return "0.3.0"
	}
	return "1.0.0"
}

// A result of any version is printed in the configuration's.
func TestResultsAreConverted(t *testing.T) {
	for _, to := range config.Versions() {
		for _, from := range config.Versions() {
			t.Run(from+" to "+to, func(t *testing.T) {
				w := newWorld(t, "plain")
				c := newCall(t, nil)
				c.prevResult = withField(t, results[form(from)], "cniVersion", from)
				c.stdin = withField(t, c.with(), "cniVersion", to)
				got, want := decoded(t, w.add(t, c)),
					decoded(t, withField(t, results[form(to)], "cniVersion", to))
				// What a result says of DNS when there is nothing to say depends on who converts
				// it.
				delete(got, "dns")
				delete(want, "dns")
				if diff := cmp.Diff(want, got); diff != "" {
					t.Error(diff)
				}
			})
		}
	}
}

// A result of the configuration's version is printed as it was written, whatever else is in it;
// without a version it gets that.
func TestResultsStayUntouched(t *testing.T) {
	for _, tc := range []struct{ name, previous, want string }{
		{
			"with blanks and fields that nobody knows",
			`{ "future": {"b":1, "a":[2]},  "cniVersion":"1.1.0","ips":[ ] }`,
			`{ "future": {"b":1, "a":[2]},  "cniVersion":"1.1.0","ips":[ ] }`,
		},
		{
			"with big numbers", `{"cniVersion":"1.1.0","x":12345678901234567890.10}`,
			`{"cniVersion":"1.1.0","x":12345678901234567890.10}`,
		},
		{
			"without a version", `{"x":12345678901234567890.10}`,
			`{"cniVersion":"1.1.0","x":12345678901234567890.10}`,
		},
		{"that is null", `null`, `{"cniVersion":"1.1.0"}`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t, "plain")
			c := newCall(t, nil)
			c.prevResult = tc.previous
			c.stdin = c.with()
			if got := w.add(t, c); got != tc.want {
				t.Errorf("%s\nwant %s", got, tc.want)
			}
		})
	}
}

func decoded(t *testing.T, text string) map[string]any {
	t.Helper()
	var value map[string]any
	if err := json.Unmarshal([]byte(text), &value); err != nil {
		t.Fatalf("%q: %v", text, err)
	}
	return value
}

// withField is an object with another value of a field. All else stays as it was written.
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
