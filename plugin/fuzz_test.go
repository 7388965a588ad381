package plugin_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/sluice-mesh/sluice/compat"
	"github.com/sluice-mesh/sluice/nft"
	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/rules"
)

// idleBackend is a backend that does nothing, and reports no difference.
type idleBackend struct{ compat.Backend }

func (idleBackend) Name() compat.BackendName { return compat.BackendNFT }

func (idleBackend) Apply(*netns.NS, rules.Ruleset, compat.Snapshot) (compat.Result, error) {
	return compat.Result{Result: nft.Result{Outcome: nft.Created}, Backend: compat.BackendNFT}, nil
}

func (idleBackend) Check(*netns.NS, rules.Ruleset, compat.Snapshot) (compat.Comparison, error) {
	return compat.Comparison{}, nil
}
func (idleBackend) Remove(*netns.NS) (bool, error) { return false, nil }

// FuzzVerbs passes arbitrary input to the verbs. No verb panics; standard output is empty or JSON;
// errors are printable lines of bounded length. For speed nothing is written to disk: the tests of
// package record cover file names.
func FuzzVerbs(f *testing.F) {
	c := newCall(f, nil)
	f.Add([]byte(c.stdin), c.args, c.id)
	f.Add([]byte(c.configuration(`"kubernetes":{"kubeconfig":"/k","exclude_namespaces":["a"]}`,
		`"log_level":"debug"`)), "", "x")
	f.Add([]byte(c.configuration(`"cni.dev/valid-attachments":[{"containerID":"../x","ifname":"eth0"}]`)),
		"K8S_POD_NAME=../../x;K8S_POD_NAMESPACE=;", "..")
	f.Add([]byte(`{"cniVersion":"0.3.0","name":"n","prevResult":{"cniVersion":"0.2.0","ip4":{"ip":"1.2.3.4/5"}}}`), "=;=;=", "a:b")
	f.Add([]byte(
		`{"cniVersion":"0.4.0","name":"n","prevResult":{"ips":[{"address":"::1%lo/128"}]}}`), "K8S_POD_NAME=a=b", "a\x00b")
	env := newTestEnv(f, "sidecar")
	env.Backend = func(compat.BackendName) (compat.Backend, error) { return idleBackend{}, nil }
	env.Now = func() time.Time { return time.Unix(0, 0) }
	f.Fuzz(func(t *testing.T, stdin []byte, args, id string) {
		env.source.requested = nil
		call := sandboxCall{
			id: id, netns: "/proc/self/ns/net", override: "1", args: args, stdin: withoutFiles(stdin),
		}
		for _, verb := range []string{"ADD", "CHECK", "DEL", "GC", "STATUS"} {
			env.stdout.Reset()
			env.stderr.Reset()
			e := env.call(verb, call)
			switch {
			case e == nil && verb == "ADD" && !json.Valid(env.stdout.Bytes()):
				t.Errorf("%s prints %q, want JSON", verb, env.stdout.String())
			case (e != nil || verb != "ADD") && env.stdout.Len() > 0:
				t.Errorf("%s prints %q and returns %v, want no output", verb, env.stdout.String(), e)
			case e != nil && (e.Code == 0 || e.Code == 999 || verb == "DEL"):
				t.Errorf("%s returns %+v, want no error of DEL, and a code other than 0 and 999", verb, e)
			case e != nil && (len(e.Msg) > 160 || len(e.Details) > 768 ||
				strings.ContainsFunc(e.String(), isControl)):
				t.Errorf("%s returns an error that is too long or not printable: %q", verb, e)
			}
		}
	})
}

func isControl(c rune) bool { return !unicode.IsPrint(c) }

// withoutFiles returns a configuration whose files cannot be written. Input that is not a JSON
// object is unchanged.
func withoutFiles(stdin []byte) string {
	var fields map[string]json.RawMessage
	if json.Unmarshal(stdin, &fields) != nil || fields == nil {
		return string(stdin)
	}
	fields["log_file"] = json.RawMessage(`""`)
	fields["cni_agent_run_dir"] = json.RawMessage(`"/dev/null/none"`)
	text, err := json.Marshal(fields)
	if err != nil {
		return string(stdin)
	}
	return string(text)
}
