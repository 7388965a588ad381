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

// DEL succeeds whatever it is given, but for the names of no attachment.
func TestDELWithoutState(t *testing.T) {
	host := netnstest.New(t)
	for name, stdin := range map[string]string{
		"no standard input": "", "no JSON": "{", "no name": `{"cniVersion":"1.0.0"}`,
		"no version":                  `{"name":"e2e"}`,
		"a version that there is not": `{"cniVersion":"7.0.0","name":"e2e"}`,
		"a wrong field":               `{"cniVersion":"1.0.0","name":"e2e","backend":"ebpf"}`,
		"a namespace that is gone":    `{"cniVersion":"1.0.0","name":"e2e"}`,
	} {
		t.Run(name, func(t *testing.T) {
			c := newCall(t, nil)
			c.stdin, c.netns = stdin, "/run/netns/gone"
			execute(t, host, "DEL", c).silent(t)
			c.netns, c.args = "", "no pairs"
			execute(t, host, "DEL", c).silent(t)
		})
	}
	c := newCall(t, nil)
	c.id = "../../etc/passwd"
	if e := execute(t, host, "DEL", c).failed(t); e.Code != types.ErrInvalidEnvironmentVariables {
		t.Errorf("DEL of what is no container: %+v", e)
	}
}

// refused are the ways in which package skel refuses a DEL whose configuration names a run
// directory.
var refused = map[string]struct{ was, is string }{
	"a version that there is not": {`"cniVersion":"1.1.0","name"`, `"cniVersion":"7.0.0","name"`},
	"no name":                     {`"name":"e2e"`, `"name":""`},
	"a name that is not allowed":  {`"name":"e2e"`, `"name":"../e2e"`},
	"a version that is no text":   {`"cniVersion":"1.1.0","name"`, `"cniVersion":7,"name"`},
}

// Whatever is wrong with its configuration, DEL forgets the attachment where ADD has kept it, and
// removes its rules.
func TestRejectedDELRemovesTheRecord(t *testing.T) {
	host := netnstest.New(t)
	for name, change := range refused {
		t.Run(name, func(t *testing.T) {
			w, ns := newWorld(t, "sidecar"), netnstest.New(t)
			c := newCall(t, ns)
			w.add(t, c)
			c.stdin = strings.Replace(c.stdin, change.was, change.is, 1)
			out := execute(t, host, "DEL", c)
			out.silent(t)
			if !strings.Contains(out.stderr, "DEL continues although it is rejected: ") {
				t.Errorf("standard error: %q", out.stderr)
			}
			c.wantNoRecord(t)
			holdsNothing(t, ns)
		})
	}
}

// A DEL that is refused leaves what any other would leave: rules that the pod's other attachment
// needs, and that one's record, or those of a sandbox that the runtime takes away.
func TestRejectedDELKeepsRules(t *testing.T) {
	host := netnstest.New(t)
	t.Run("of the pod's other attachment", func(t *testing.T) {
		w, ns := newWorld(t, "sidecar"), netnstest.New(t)
		c := newCall(t, ns)
		other := c
		other.ifname = "net1"
		w.add(t, c)
		w.add(t, other)
		other.stdin = strings.Replace(c.stdin, `"name":"e2e"`, `"name":""`, 1)
		execute(t, host, "DEL", other).silent(t)
		holds(t, ns)
		keys, err := record.In(c.runDir).Keys()
		if want := []record.Key{{ContainerID: c.id, IfName: "eth0"}}; err != nil ||
			!slices.Equal(keys, want) {
			t.Errorf("records: %v, %v; want %v", keys, err, want)
		}
	})
	t.Run("of a Kubernetes sandbox", func(t *testing.T) {
		w, ns := newWorld(t, "sidecar"), netnstest.New(t)
		c := newCall(t, ns)
		w.add(t, c)
		c.args += ";K8S_POD_INFRA_CONTAINER_ID=" + c.id
		c.stdin = strings.Replace(c.stdin, `"name":"e2e"`, `"name":""`, 1)
		execute(t, host, "DEL", c).silent(t)
		holds(t, ns)
		c.wantNoRecord(t)
	})
}

// A DEL that is refused leaves the host's own namespace alone, too, unless the caller vouches for
// it.
func TestRejectedDELInTheHostNamespace(t *testing.T) {
	w, host := newWorld(t, "sidecar"), netnstest.New(t)
	c := newCall(t, host)
	w.add(t, c)
	c.stdin = strings.Replace(c.stdin, `"name":"e2e"`, `"name":""`, 1)
	execute(t, host, "DEL", c).silent(t)
	holds(t, host)
	cmd := command(t, "DEL", c)
	cmd.Env = append(cmd.Env, "CNI_NETNS_OVERRIDE=1")
	run(t, host, cmd).silent(t)
	holdsNothing(t, host)
}

// An environment that is not complete is refused before anybody has read standard input. DEL reads
// it nevertheless, and does not wait for ever for its end.
func TestDELWithoutCompleteEnvironment(t *testing.T) {
	host := netnstest.New(t)
	without := func(environment []string) []string {
		return slices.DeleteFunc(environment, func(pair string) bool {
			return strings.HasPrefix(pair, "CNI_PATH=")
		})
	}
	t.Run("all is there", func(t *testing.T) {
		w := newWorld(t, "plain")
		c := newCall(t, nil)
		w.add(t, c)
		cmd := command(t, "DEL", c)
		cmd.Env = without(cmd.Env)
		run(t, host, cmd).silent(t)
		c.wantNoRecord(t)
	})
	t.Run("standard input does not end", func(t *testing.T) {
		c := newCall(t, nil)
		silent, keptOpen, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = errors.Join(silent.Close(), keptOpen.Close()) }()
		cmd := command(t, "DEL", c)
		cmd.Env, cmd.Stdin = without(cmd.Env), silent
		out := run(t, host, cmd)
		out.silent(t)
		if !strings.Contains(out.stderr,
			"DEL continues without its configuration: standard input has not ended after 1s") {
			t.Errorf("standard error: %q", out.stderr)
		}
	})
}

// DEL reads as much as a runtime could have to say, without a word on standard error, and no more
// of what does not end.
func TestDELWithALongConfiguration(t *testing.T) {
	w, host := newWorld(t, "plain"), netnstest.New(t)
	for _, tc := range []struct {
		name   string
		spaces int
		stderr string
		kept   bool
	}{
		{"15 MiB are read", 15 << 20, "", false},
		{"17 MiB are not", 17 << 20, "read standard input: more than 16 MiB", true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := newCall(t, nil)
			w.add(t, c)
			out, in, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			cmd := command(t, "DEL", c)
			cmd.Stdin = out
			var writer sync.WaitGroup
			writer.Go(func() {
				_, _ = in.WriteString(c.stdin + strings.Repeat(" ", tc.spaces))
				if !tc.kept {
					_ = in.Close()
				}
			})
			ended := run(t, host, cmd)
			_ = errors.Join(out.Close(), in.Close()) // the writer ends too
			writer.Wait()
			ended.silent(t)
			if (ended.stderr == "") != (tc.stderr == "") ||
				!strings.Contains(ended.stderr, tc.stderr) {
				t.Errorf("standard error: %q", ended.stderr)
			}
			_, err = os.Stat(filepath.Join(c.runDir, "attachments", c.id+":eth0.json"))
			if kept := !errors.Is(err, fs.ErrNotExist); kept != tc.kept {
				t.Errorf("record: %v, want it kept: %v", err, tc.kept)
			}
		})
	}
}
