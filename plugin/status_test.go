package plugin_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/containernetworking/cni/pkg/types"
	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/compat"
	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
	"github.com/sluice-mesh/sluice/plugin/file/filetest"
	"github.com/sluice-mesh/sluice/plugin/record"
	"github.com/sluice-mesh/sluice/plugin/record/recordtest"
	"github.com/sluice-mesh/sluice/plugin/source"
	"github.com/sluice-mesh/sluice/rules"
)

// TestStatus checks that STATUS reports exactly the problems that would keep all pods of the mesh
// from starting, except those that the node agent repairs.
func TestStatus(t *testing.T) {
	refusing := backend{apply: func(*netns.NS, rules.Ruleset) (compat.Result, error) {
		return compat.Result{}, errors.New("no nf_tables")
	}}
	const agent = `"pod_namespace":"sluice-system"`
	for _, tc := range []struct {
		name    string
		kind    source.Kind
		backend backend
		field   string
		want    []string // in the error; empty for success
	}{
		{"no problem", "", backend{}, `"backend":"auto"`, nil},
		{"the kernel rejects rules", "", refusing, `"backend":"auto"`, []string{"no nf_tables"}},
		{
			"there is no kubeconfig", source.Misconfigured,
			backend{},
			`"backend":"auto"`,
			[]string{"API"},
		},
		{
			"the credentials are invalid", source.Unauthorized,
			backend{},
			`"backend":"auto"`,
			[]string{"API"},
		},
		{
			"the API server forbids a request for a pod that cannot exist", source.Forbidden,
			backend{},
			`"backend":"auto"`, nil,
		},
		{"the API server is unavailable", source.Unavailable, backend{}, `"backend":"auto"`, nil},
		{
			"the kernel rejects rules, and the credentials are invalid", source.Unauthorized, refusing, `"backend":"auto"`,
			[]string{"no nf_tables; API"},
		},
		{
			"the credentials are invalid, and pods start nevertheless", source.Unauthorized,
			backend{},
			`"unreadable_pods":"skip"`, nil,
		},
		{
			"the configuration is invalid", "",
			backend{},
			`"exclude_namespace":[]`,
			[]string{"exclude_namespaces"},
		},
		{
			"no kubeconfig, which the node agent writes", source.Misconfigured,
			backend{},
			agent, nil,
		},
		{
			"the credentials are invalid, and the node agent renews them", source.Unauthorized,
			backend{},
			agent, nil,
		},
		{
			"the configuration is invalid, and the node agent replaces it", "",
			backend{},
			agent + `,"exclude_namespace":[]`, nil,
		},
		{
			"the kernel rejects rules, which the node agent cannot repair", "", refusing, agent,
			[]string{"no nf_tables"},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			netnstest.RequireRoot(t)
			env := newTestEnv(t, "")
			env.useBackend(t, tc.backend)
			if tc.kind != "" {
				env.source.err = source.WithKind(tc.kind, errors.New("API"))
			}
			c := newCall(t, nil)
			c.stdin = c.configuration(tc.field)
			e := env.call("STATUS", c)
			if len(tc.want) == 0 && e != nil {
				t.Fatalf("STATUS: %+v, want success", e)
			}
			for _, text := range tc.want {
				if e == nil || e.Code != types.ErrPluginNotAvailable ||
					!strings.Contains(e.String(), text) {
					t.Errorf("STATUS: %+v, want code 50 and %q", e, text)
				}
			}
			if tc.kind != "" && env.stderr.Len() == 0 {
				t.Error("the log is empty, want the problem")
			}
			if env.stdout.Len() > 0 {
				t.Errorf("standard output: %q, want none", env.stdout.String())
			}
		})
	}
}

// TestStatusFailsOnlyIfNamespacesAreForbidden checks that STATUS fails only if the plugin may not
// create namespaces, and not if the node has no resources for another one, which ADD does not need.
// The kernel is then checked again by the next call.
func TestStatusFailsOnlyIfNamespacesAreForbidden(t *testing.T) {
	if !filetest.Private(t) {
		return
	}
	netnstest.RequireRoot(t)
	for _, tc := range []struct {
		errno unix.Errno
		code  uint
	}{{unix.EPERM, types.ErrPluginNotAvailable}, {unix.ENOMEM, 0}, {unix.ENOSPC, 0}} {
		env := newTestEnv(t, "")
		c := newCall(t, nil)
		filetest.Deny(t, unix.SYS_UNSHARE, tc.errno) // replaces the error of an earlier call
		for range 2 {
			env.stderr.Reset()
			e := env.call("STATUS", c)
			if (e == nil) != (tc.code == 0) || e != nil && e.Code != tc.code {
				t.Errorf("%v: STATUS: %+v, want code %d", tc.errno, e, tc.code)
			}
			if log := env.stderr.String(); tc.code == 0 &&
				(!strings.Contains(log, "the kernel cannot be checked now") ||
					!strings.Contains(log, tc.errno.Error())) {
				t.Errorf("%v: log %q, want the error", tc.errno, log)
			}
		}
	}
}

// TestGC checks that GC removes the records that the runtime does not list, of its network only.
func TestGC(t *testing.T) {
	key := func(id string) record.Key { return record.Key{ContainerID: id, IfName: "eth0"} }
	stored := []record.Record{
		{Key: key("a"), Network: "e2e", Outcome: "skip"},
		{Key: key("b"), Network: "e2e", Outcome: "skip"},
		{Key: key("c"), Network: "other", Outcome: "skip"},
	}
	for _, tc := range []struct {
		name, list string
		left       string
		code       uint
	}{
		{
			"some attachments are valid",
			`"cni.dev/valid-attachments":[{"containerID":"b","ifname":"eth0"},{"containerID":"z","ifname":"eth0"}]`,
			"b c", 0,
		},
		{
			"another interface is valid",
			`"cni.dev/valid-attachments":[{"containerID":"b","ifname":"net1"}]`, "c", 0,
		},
		{"no attachment is valid", `"cni.dev/valid-attachments":[]`, "c", 0},
		{"no attachment is valid, as libcni writes it", `"cni.dev/valid-attachments":null`, "c", 0},
		{"the list is missing", `"type":"x"`, "a b c", types.ErrInvalidNetworkConfig},
		{"the list has another type", `"cni.dev/valid-attachments":{}`, "a b c", types.ErrDecodingFailure},
	} {
		t.Run(tc.name, func(t *testing.T) {
			env := newTestEnv(t, "")
			c := newCall(t, nil)
			store := record.In(c.runDir)
			for _, r := range stored {
				if err := store.Put(r); err != nil {
					t.Fatal(err)
				}
			}
			c.stdin = c.configuration(tc.list)
			if e := env.call("GC", c); (e == nil) != (tc.code == 0) || e != nil && e.Code != tc.code {
				t.Errorf("GC: %+v, want code %d", e, tc.code)
			}
			all, err := recordtest.List(store)
			if err != nil {
				t.Fatal(err)
			}
			var remaining []string
			for _, r := range all {
				remaining = append(remaining, r.ContainerID)
			}
			if got := strings.Join(remaining, " "); got != tc.left {
				t.Errorf("remaining records: %s, want %s", got, tc.left)
			}
		})
	}
}
