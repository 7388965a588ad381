package plugin_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sluice-mesh/sluice/compat"
	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
	"github.com/sluice-mesh/sluice/plugin/source"
	"github.com/sluice-mesh/sluice/rules"
)

// STATUS finds out again only what may have changed: each row is a call after others, and what it
// looks at.
func TestStatusCachesSuccess(t *testing.T) {
	netnstest.RequireRoot(t)
	w := newWorld(t, "")
	kernel, refused := 0, error(nil)
	w.use(t, backend{apply: func(*netns.NS, rules.Ruleset) (compat.Result, error) {
		kernel++
		return compat.Result{}, refused
	}})
	now := time.Unix(1e9, 0)
	w.Now = func() time.Time { return now }
	c := newCall(t, nil)
	kubeconfig := filepath.Join(c.runDir, "sluice-cni-kubeconfig")
	file := filepath.Join(c.runDir, "sluice-cni-status.json")
	for _, row := range []struct {
		name           string
		change         func()
		kernel, source int // how often they are asked
		fails          bool
	}{
		{"the first call", func() {}, 1, 1, false},
		{"the next", func() { now = now.Add(5 * time.Second) }, 0, 0, false},
		{"a minute later", func() { now = now.Add(time.Minute) }, 0, 1, false},
		{"five minutes later", func() { now = now.Add(5 * time.Minute) }, 1, 1, false},
		{"the clock was set back", func() { now = now.Add(-time.Hour) }, 1, 1, false},
		{"there is another kubeconfig", func() { write(t, kubeconfig, "a") }, 0, 1, false},
		{"it is another one again", func() { write(t, kubeconfig, "ab") }, 0, 1, false},
		{"another backend is configured", func() {
			c.stdin = c.with(`"backend":"nft"`)
		}, 1, 0, false},
		{"another boot", func() { replace(t, file, `"boot":"`, `"boot":"x`) }, 1, 1, false},
		{"another program", func() {
			replace(t, file, `"program":"`, `"program":"x`)
		}, 1, 1, false},
		{"what is remembered is damaged", func() { write(t, file, "{") }, 1, 1, false},
		{"it holds nothing", func() { write(t, file, "null") }, 1, 1, false},
		{
			"an ADD has failed", func() {
				wrong := c
				wrong.args = "no pairs"
				if e := w.call("ADD", wrong); e == nil {
					t.Error("ADD succeeds")
				}
			}, 1, 1, false,
		},
		{"the kernel refuses, which is not remembered", func() {
			now, refused = now.Add(time.Hour), errors.New("no")
		}, 1, 1, true},
		{"it still does", func() {}, 1, 0, true},
		{"it does no more", func() { refused = nil }, 1, 0, false},
		{
			"the credentials are refused", func() {
				now = now.Add(time.Minute)
				w.source.err = source.WithKind(source.Unauthorized, errors.New("no"))
			}, 0, 1, true,
		},
		{"they still are", func() {}, 0, 1, true},
		{"they are good again", func() { w.source.err = nil }, 0, 1, false},
	} {
		row.change()
		kernel, w.source.asked = 0, nil
		e := w.call("STATUS", c)
		if kernel != row.kernel || len(w.source.asked) != row.source || (e != nil) != row.fails {
			t.Errorf("%s: the kernel is asked %d times, the source %d times: %v", row.name, kernel,
				len(w.source.asked), e)
		}
	}
	if left, err := filepath.Glob(filepath.Join(c.runDir, ".sluice-cni-status*")); err != nil ||
		len(left) > 0 {
		t.Errorf("left behind: %q, %v", left, err)
	}
}

// What fails while STATUS looks at one thing puts in doubt what it knows of another.
func TestStatusDuringAFailingADD(t *testing.T) {
	netnstest.RequireRoot(t)
	w := newWorld(t, "")
	kernel := 0
	w.use(t, backend{apply: func(*netns.NS, rules.Ruleset) (compat.Result, error) {
		kernel++
		return compat.Result{}, nil
	}})
	now := time.Unix(1e9, 0)
	w.Now = func() time.Time { return now }
	c := newCall(t, nil)
	status := func() {
		t.Helper()
		if e := w.call("STATUS", c); e != nil {
			t.Error(e)
		}
	}
	status()
	now = now.Add(time.Minute)
	w.source.during = func() {
		wrong := c
		wrong.args = "no pairs"
		if e := w.call("ADD", wrong); e == nil {
			t.Error("ADD succeeds")
		}
	}
	status()
	if kernel != 1 {
		t.Errorf("the kernel is asked %d times", kernel)
	}
	w.source.during = nil
	status()
	if kernel != 2 {
		t.Error("the kernel is not asked after an ADD has failed")
	}
}

// What is remembered stays small, however often credentials are renewed.
func TestStatusCacheExpires(t *testing.T) {
	netnstest.RequireRoot(t)
	w := newWorld(t, "")
	w.use(t, backend{})
	now := time.Unix(1e9, 0)
	w.Now = func() time.Time { return now }
	c := newCall(t, nil)
	for i := range 50 {
		now = now.Add(time.Minute)
		write(t, filepath.Join(c.runDir, "sluice-cni-kubeconfig"), strings.Repeat("x", i))
		if e := w.call("STATUS", c); e != nil {
			t.Fatal(e)
		}
	}
	if text, err := os.ReadFile(filepath.Join(c.runDir, "sluice-cni-status.json")); err != nil ||
		strings.Count(string(text), "source") > 5 {
		t.Errorf("%v: %s", err, text)
	}
}

// Where nothing can be kept everything is looked at each time.
func TestStatusWithoutACacheDirectory(t *testing.T) {
	w := newWorld(t, "")
	c := newCall(t, nil)
	c.runDir = "/proc/nowhere"
	c.stdin = c.with()
	for range 2 {
		if e := w.call("STATUS", c); e != nil {
			t.Error(e)
		}
	}
	if len(w.source.asked) != 2 {
		t.Errorf("asked %q", w.source.asked)
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func replace(t *testing.T, path, before, after string) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil || !strings.Contains(string(text), before) {
		t.Fatalf("%s: %q, %v", path, text, err)
	}
	write(t, path, strings.Replace(string(text), before, after, 1))
}
