package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestRemoveCapabilitiesKeepsOnlyCapabilitiesOfTheSet(t *testing.T) {
	set := map[string]bool{"CAP_CHOWN": true, "CAP_SYS_RESOURCE": false}
	for name, c := range map[string]struct{ before, after string }{
		"a container": {
			`{"process":{"capabilities":{"bounding":["CAP_CHOWN","CAP_SYS_RESOURCE"],` +
				`"effective":["CAP_SYS_RESOURCE"]}},"x":9007199254740993}`,
			`{"process":{"capabilities":{"bounding":["CAP_CHOWN"],"effective":[]}},"x":9007199254740993}`,
		},
		"a process": {
			`{"capabilities":{"bounding":["CAP_SYS_RESOURCE","CAP_CHOWN"]}}`,
			`{"capabilities":{"bounding":["CAP_CHOWN"]}}`,
		},
		"an unknown capability": {
			`{"capabilities":{"bounding":["CAP_NEW"]}}`, `{"capabilities":{"bounding":[]}}`,
		},
		"a container without the field capabilities": {
			`{"process":{"args":["sh"]}}`, `{"process":{"args":["sh"]}}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := removeCapabilities([]byte(c.before), set)
			if err != nil || string(got) != c.after {
				t.Errorf("specification %s, error %v; want %s", got, err, c.after)
			}
		})
	}
	if got, err := removeCapabilities([]byte("x"), set); err == nil {
		t.Errorf("an invalid specification becomes %s, want an error", got)
	}
}

func TestSpecificationsOnTheCommandLine(t *testing.T) {
	for _, c := range []struct{ argv, files []string }{
		{
			[]string{"runc", "--log", "x", "create", "--bundle", "/b", "id"},
			[]string{"/b/config.json"},
		},
		{[]string{"runc", "exec", "--process", "/p.json", "--detach", "id"}, []string{"/p.json"}},
		{[]string{"runc", "run", "-b", "/b"}, []string{"/b/config.json"}},
		{[]string{"runc", "delete", "--force", "id"}, nil},
	} {
		if diff := cmp.Diff(c.files, specifications(c.argv)); diff != "" {
			t.Errorf("%q: specifications (-want +got):\n%s", c.argv, diff)
		}
	}
}

func TestNextRuncSkipsThisProgram(t *testing.T) {
	first, second := t.TempDir(), t.TempDir()
	self, err := os.Readlink("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(self, filepath.Join(first, "runc")); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", first+":"+second)
	if got, err := nextRunc(); err == nil {
		t.Errorf("nextRunc returns %s, want an error because PATH contains only this program", got)
	}
	want := filepath.Join(second, "runc")
	if err := os.WriteFile(want, nil, 0o755); err != nil {
		t.Fatal(err)
	}
	if got, err := nextRunc(); got != want || err != nil {
		t.Errorf("next runc %s, error %v; want %s", got, err, want)
	}
}

func TestRestrictRewritesTheFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "config.json")
	if err := restrict(file, nil); err != nil {
		t.Errorf("missing file: %v", err)
	}
	if err := os.WriteFile(file,
		[]byte(`{"process":{"capabilities":{"bounding":["CAP_CHOWN","CAP_NEW"]}}}`),
		0o644); err != nil {
		t.Fatal(err)
	}
	set, err := boundingSet()
	if err != nil {
		t.Fatal(err)
	}
	if err := restrict(file, set); err != nil {
		t.Fatal(err)
	}
	var got struct {
		Process struct{ Capabilities map[string][]string }
	}
	content, err := os.ReadFile(file)
	if err == nil {
		err = json.Unmarshal(content, &got)
	}
	if diff := cmp.Diff(map[string][]string{"bounding": {"CAP_CHOWN"}},
		got.Process.Capabilities); err != nil || diff != "" {
		t.Errorf("capabilities after restrict: error %v, (-want +got):\n%s", err, diff)
	}
}
