package plugin_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/compat"
	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
	"github.com/sluice-mesh/sluice/plugin/source"
	"github.com/sluice-mesh/sluice/rules"
)

// TestStatusCachesSuccess checks that STATUS checks again only what may have changed. Each row is a
// call after the previous ones, with the expected checks.
func TestStatusCachesSuccess(t *testing.T) {
	netnstest.RequireRoot(t)
	env := newTestEnv(t, "")
	kernelRequests, kernelErr := 0, error(nil)
	env.useBackend(t, backend{apply: func(*netns.NS, rules.Ruleset) (compat.Result, error) {
		kernelRequests++
		return compat.Result{}, kernelErr
	}})
	now := time.Unix(1e9, 0)
	env.Now = func() time.Time { return now }
	c := newCall(t, nil)
	kubeconfig := filepath.Join(c.runDir, "sluice-cni-kubeconfig")
	file := filepath.Join(c.runDir, "sluice-cni-status.json")
	for _, row := range []struct {
		name           string
		change         func()
		kernel, source int // expected numbers of requests to the kernel and to the source of pods
		fails          bool
	}{
		{"the first call", func() {}, 1, 1, false},
		{"the next call", func() { now = now.Add(5 * time.Second) }, 0, 0, false},
		{"a minute later", func() { now = now.Add(time.Minute) }, 0, 1, false},
		{"five minutes later", func() { now = now.Add(5 * time.Minute) }, 1, 1, false},
		{"the clock was set back", func() { now = now.Add(-time.Hour) }, 1, 1, false},
		{"a changed kubeconfig", func() { writeFile(t, kubeconfig, "a") }, 0, 1, false},
		{"the kubeconfig changes again", func() { writeFile(t, kubeconfig, "ab") }, 0, 1, false},
		{"another backend", func() {
			c.stdin = c.configuration(`"backend":"nft"`)
		}, 1, 0, false},
		{"another boot", func() { replaceInFile(t, file, `"boot":"`, `"boot":"x`) }, 1, 1, false},
		{"another program", func() {
			replaceInFile(t, file, `"program":"`, `"program":"x`)
		}, 1, 1, false},
		{"a damaged cache", func() { writeFile(t, file, "{") }, 1, 1, false},
		{"an empty cache", func() { writeFile(t, file, "null") }, 1, 1, false},
		{
			"an ADD has failed", func() {
				wrong := c
				wrong.args = "no pairs"
				if e := env.call("ADD", wrong); e == nil {
					t.Error("ADD succeeds, want an error")
				}
			}, 1, 1, false,
		},
		{"the kernel rejects rules, which is not cached", func() {
			now, kernelErr = now.Add(time.Hour), errors.New("no")
		}, 1, 1, true},
		{"the kernel still rejects rules", func() {}, 1, 0, true},
		{"the kernel accepts rules again", func() { kernelErr = nil }, 1, 0, false},
		{
			"the credentials are rejected", func() {
				now = now.Add(time.Minute)
				env.source.err = source.WithKind(source.Unauthorized, errors.New("no"))
			}, 0, 1, true,
		},
		{"the credentials are still rejected", func() {}, 0, 1, true},
		{"the credentials are valid again", func() { env.source.err = nil }, 0, 1, false},
	} {
		row.change()
		kernelRequests, env.source.requested = 0, nil
		e := env.call("STATUS", c)
		if kernelRequests != row.kernel || len(env.source.requested) != row.source ||
			(e != nil) != row.fails {
			t.Errorf("%s: %d requests to the kernel, %d to the source, error %v; want %d, %d, error %t",
				row.name, kernelRequests, len(env.source.requested), e, row.kernel, row.source,
				row.fails)
		}
	}
	if remaining, err := filepath.Glob(filepath.Join(c.runDir, ".sluice-cni-status*")); err != nil ||
		len(remaining) > 0 {
		t.Errorf("remaining temporary files: %q, error %v", remaining, err)
	}
}

// TestFailingADDInvalidatesTheStatusCache checks that an ADD that fails during STATUS invalidates
// all results that STATUS caches, including the results of checks that began before the failure and
// end after it.
func TestFailingADDInvalidatesTheStatusCache(t *testing.T) {
	netnstest.RequireRoot(t)
	env := newTestEnv(t, "")
	kernelRequests := 0
	env.useBackend(t, backend{apply: func(*netns.NS, rules.Ruleset) (compat.Result, error) {
		kernelRequests++
		return compat.Result{}, nil
	}})
	now := time.Unix(1e9, 0)
	env.Now = func() time.Time { return now }
	c := newCall(t, nil)
	status := func() {
		t.Helper()
		if e := env.call("STATUS", c); e != nil {
			t.Errorf("STATUS: %+v", e)
		}
	}
	failADD := func() {
		wrong := c
		wrong.args = "no pairs"
		if e := env.call("ADD", wrong); e == nil {
			t.Error("ADD succeeds, want an error")
		}
	}
	// want checks the numbers of requests since the last call.
	want := func(name string, kernel, source int) {
		t.Helper()
		if kernelRequests != kernel || len(env.source.requested) != source {
			t.Errorf("%s: %d requests to the kernel, %d to the source; want %d, %d", name,
				kernelRequests, len(env.source.requested), kernel, source)
		}
		kernelRequests, env.source.requested = 0, nil
	}
	status()
	want("the first call", 1, 1)
	now = now.Add(time.Minute)
	env.source.onRequest = failADD
	status()
	want("ADD fails while the source is checked", 0, 1)
	env.source.onRequest = nil
	status()
	want("after the failed ADD", 1, 1)
	failADD()
	env.source.onRequest = func() {
		env.source.onRequest = nil
		failADD()
		status()
	}
	status()
	want("ADD fails while the source is checked, and another STATUS begins", 2, 2)
	status()
	want("after both", 0, 0)
}

// TestStatusCacheExpires checks that the cache omits expired results, and therefore stays small if
// the credentials are renewed often.
func TestStatusCacheExpires(t *testing.T) {
	netnstest.RequireRoot(t)
	env := newTestEnv(t, "")
	env.useBackend(t, backend{})
	now := time.Unix(1e9, 0)
	env.Now = func() time.Time { return now }
	c := newCall(t, nil)
	for i := range 50 {
		now = now.Add(time.Minute)
		writeFile(t, filepath.Join(c.runDir, "sluice-cni-kubeconfig"), strings.Repeat("x", i))
		if e := env.call("STATUS", c); e != nil {
			t.Fatalf("STATUS: %+v", e)
		}
	}
	if text, err := os.ReadFile(filepath.Join(c.runDir, "sluice-cni-status.json")); err != nil ||
		strings.Count(string(text), "source") > 5 {
		t.Errorf("cache %s, error %v; want at most 5 results of the source", text, err)
	}
}

// TestStatusSucceedsWithoutACache checks that STATUS succeeds and checks the source of pods each
// time if the cache cannot be written.
func TestStatusSucceedsWithoutACache(t *testing.T) {
	env := newTestEnv(t, "")
	c := newCall(t, nil)
	c.runDir = "/proc/nowhere"
	c.stdin = c.configuration()
	for range 2 {
		if e := env.call("STATUS", c); e != nil {
			t.Errorf("STATUS: %+v", e)
		}
	}
	if len(env.source.requested) != 2 {
		t.Errorf("requests to the source: %q, want two", env.source.requested)
	}
}

// TestStatusDoesNotWaitForAPipe checks that STATUS does not wait for a writer of a pipe in place of
// its cache.
func TestStatusDoesNotWaitForAPipe(t *testing.T) {
	netnstest.RequireRoot(t)
	env := newTestEnv(t, "")
	c := newCall(t, nil)
	if err := unix.Mkfifo(filepath.Join(c.runDir, "sluice-cni-status.json"), 0o600); err != nil {
		t.Fatal(err)
	}
	if e := env.call("STATUS", c); e != nil {
		t.Errorf("STATUS: %+v", e)
	}
}

func writeFile(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func replaceInFile(t *testing.T, path, before, after string) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil || !strings.Contains(string(text), before) {
		t.Fatalf("%s: %q, error %v; want a file that contains %q", path, text, err, before)
	}
	writeFile(t, path, strings.Replace(string(text), before, after, 1))
}
