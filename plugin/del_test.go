package plugin_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/containernetworking/cni/pkg/types"

	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
	"github.com/sluice-mesh/sluice/plugin/record"
)

// TestDELSucceedsWithAnyInput checks that DEL succeeds with any input, except for invalid names of
// an attachment.
func TestDELSucceedsWithAnyInput(t *testing.T) {
	host := netnstest.New(t)
	for name, stdin := range map[string]string{
		"no standard input": "", "invalid JSON": "{", "no name": `{"cniVersion":"1.0.0"}`,
		"no version":                      `{"name":"e2e"}`,
		"an unknown version":              `{"cniVersion":"7.0.0","name":"e2e"}`,
		"a wrong field":                   `{"cniVersion":"1.0.0","name":"e2e","backend":"ebpf"}`,
		"a namespace that does not exist": `{"cniVersion":"1.0.0","name":"e2e"}`,
	} {
		t.Run(name, func(t *testing.T) {
			c := newCall(t, nil)
			c.stdin, c.netns = stdin, "/run/netns/gone"
			execute(t, host, "DEL", c).checkSilent(t)
			c.netns, c.args = "", "no pairs"
			execute(t, host, "DEL", c).checkSilent(t)
		})
	}
	c := newCall(t, nil)
	c.id = "../../etc/passwd"
	if e := execute(t, host, "DEL", c).mustFail(t); e.Code != types.ErrInvalidEnvironmentVariables {
		t.Errorf("DEL of an invalid container id: %+v, want code %d", e,
			types.ErrInvalidEnvironmentVariables)
	}
}

// rejectedConfigurations contains changes to a valid configuration that make package skel reject
// DEL.
var rejectedConfigurations = map[string]struct{ old, new string }{
	"an unknown version":             {`"cniVersion":"1.1.0","name"`, `"cniVersion":"7.0.0","name"`},
	"no name":                        {`"name":"e2e"`, `"name":""`},
	"a name that is not allowed":     {`"name":"e2e"`, `"name":"../e2e"`},
	"a version that is not a string": {`"cniVersion":"1.1.0","name"`, `"cniVersion":7,"name"`},
}

// TestRejectedDELRemovesTheRecord checks that DEL removes the record and the rules of ADD despite
// an invalid configuration.
func TestRejectedDELRemovesTheRecord(t *testing.T) {
	host := netnstest.New(t)
	for name, change := range rejectedConfigurations {
		t.Run(name, func(t *testing.T) {
			env, ns := newTestEnv(t, "sidecar"), netnstest.New(t)
			c := newCall(t, ns)
			env.add(t, c)
			c.stdin = strings.Replace(c.stdin, change.old, change.new, 1)
			out := execute(t, host, "DEL", c)
			out.checkSilent(t)
			if !strings.Contains(out.stderr, "DEL continues although it was rejected: ") {
				t.Errorf("standard error: %q, want the reason of the rejection", out.stderr)
			}
			c.checkNoRecord(t)
			checkNoRules(t, ns)
		})
	}
}

// TestRejectedDELKeepsRules checks that a rejected DEL keeps what any other DEL keeps: the rules
// and the record of another attachment of the pod, and the rules of a sandbox that the runtime
// deletes.
func TestRejectedDELKeepsRules(t *testing.T) {
	host := netnstest.New(t)
	t.Run("rules of the pod's other attachment", func(t *testing.T) {
		env, ns := newTestEnv(t, "sidecar"), netnstest.New(t)
		c := newCall(t, ns)
		other := c
		other.ifname = "net1"
		env.add(t, c)
		env.add(t, other)
		other.stdin = strings.Replace(c.stdin, `"name":"e2e"`, `"name":""`, 1)
		execute(t, host, "DEL", other).checkSilent(t)
		checkHasRules(t, ns)
		keys, err := record.In(c.runDir).Keys()
		if want := []record.Key{{ContainerID: c.id, IfName: "eth0"}}; err != nil ||
			!slices.Equal(keys, want) {
			t.Errorf("records: %v, error %v; want %v", keys, err, want)
		}
	})
	t.Run("rules of a Kubernetes sandbox", func(t *testing.T) {
		env, ns := newTestEnv(t, "sidecar"), netnstest.New(t)
		c := newCall(t, ns)
		env.add(t, c)
		c.args += ";K8S_POD_INFRA_CONTAINER_ID=" + c.id
		c.stdin = strings.Replace(c.stdin, `"name":"e2e"`, `"name":""`, 1)
		execute(t, host, "DEL", c).checkSilent(t)
		checkHasRules(t, ns)
		c.checkNoRecord(t)
	})
}

// TestRejectedDELKeepsTheHostsNamespace checks that a rejected DEL does not change the host's
// namespace either, unless the caller sets the override.
func TestRejectedDELKeepsTheHostsNamespace(t *testing.T) {
	env, host := newTestEnv(t, "sidecar"), netnstest.New(t)
	c := newCall(t, host)
	env.add(t, c)
	c.stdin = strings.Replace(c.stdin, `"name":"e2e"`, `"name":""`, 1)
	execute(t, host, "DEL", c).checkSilent(t)
	checkHasRules(t, host)
	cmd := command(t, "DEL", c)
	cmd.Env = append(cmd.Env, "CNI_NETNS_OVERRIDE=1")
	run(t, host, cmd).checkSilent(t)
	checkNoRules(t, host)
}

// TestDELContinuesWithoutACompleteEnvironment covers an incomplete environment, which package skel
// rejects before it reads standard input. DEL then reads standard input itself, with a timeout.
func TestDELContinuesWithoutACompleteEnvironment(t *testing.T) {
	host := netnstest.New(t)
	withoutPath := func(environment []string) []string {
		return slices.DeleteFunc(environment, func(pair string) bool {
			return strings.HasPrefix(pair, "CNI_PATH=")
		})
	}
	t.Run("complete standard input", func(t *testing.T) {
		env := newTestEnv(t, "plain")
		c := newCall(t, nil)
		env.add(t, c)
		cmd := command(t, "DEL", c)
		cmd.Env = withoutPath(cmd.Env)
		run(t, host, cmd).checkSilent(t)
		c.checkNoRecord(t)
	})
	t.Run("standard input does not end", func(t *testing.T) {
		c := newCall(t, nil)
		silent, keptOpen, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = errors.Join(silent.Close(), keptOpen.Close()) }()
		cmd := command(t, "DEL", c)
		cmd.Env, cmd.Stdin = withoutPath(cmd.Env), silent
		out := run(t, host, cmd)
		out.checkSilent(t)
		if !strings.Contains(out.stderr,
			"DEL continues without its configuration: standard input has not ended after 1s") {
			t.Errorf("standard error: %q, want a timeout after 1s", out.stderr)
		}
	})
}

// TestDELReadsLongConfigurations checks that DEL reads every configuration that a runtime could
// pass, without a message on standard error, and limits endless input.
func TestDELReadsLongConfigurations(t *testing.T) {
	env, host := newTestEnv(t, "plain"), netnstest.New(t)
	for _, tc := range []struct {
		name   string
		spaces int
		stderr string
		kept   bool
	}{
		{"3 MiB", 3 << 20, "", false},
		{"5 MiB", 5 << 20, "read standard input: more than 4 MiB", true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := newCall(t, nil)
			env.add(t, c)
			out, in, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			cmd := command(t, "DEL", c)
			cmd.Stdin = out
			var writer sync.WaitGroup
			writer.Go(func() {
				_, _ = in.WriteString(c.stdin + strings.Repeat(" ", tc.spaces))
				if !tc.kept { // the plugin must not wait for the end of the longer input
					_ = in.Close()
				}
			})
			ended := run(t, host, cmd)
			_ = errors.Join(out.Close(), in.Close()) // also ends the writer
			writer.Wait()
			ended.checkSilent(t)
			if (ended.stderr == "") != (tc.stderr == "") ||
				!strings.Contains(ended.stderr, tc.stderr) {
				t.Errorf("standard error: %q, want %q", ended.stderr, tc.stderr)
			}
			_, err = os.Stat(filepath.Join(c.runDir, "attachments", c.id+":eth0.json"))
			if kept := !errors.Is(err, fs.ErrNotExist); kept != tc.kept {
				t.Errorf("the record is kept: %t, want %t: %v", kept, tc.kept, err)
			}
		})
	}
}
