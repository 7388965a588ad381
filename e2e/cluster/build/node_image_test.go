package build

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// put writes files to a directory.
func put(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, content := range files {
		if err := tree(dir).write(name, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func read(t *testing.T, file string) string {
	t.Helper()
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

func TestWriteReplacesHardLinkedFiles(t *testing.T) {
	system, node := t.TempDir(), tree(filepath.Join(t.TempDir(), "root"))
	put(t, system, map[string]string{"etc/a": "system", "etc/b": "system", "usr/c": "system"})
	if err := runIn(t.Context(), t.TempDir(), "cp", "-al", system, string(node)); err != nil {
		t.Fatal(err)
	}
	put(t, string(node), map[string]string{"etc/a": "node"})
	if err := node.link("/dev/null", "etc/b"); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"etc/a", "etc/b", "usr/c"} {
		if got := read(t, filepath.Join(system, name)); got != "system" {
			t.Errorf("%s of the original tree contains %q, want system", name, got)
		}
	}
	if a, c := read(t, node.path("etc/a")), read(t, node.path("usr/c")); a != "node" ||
		c != "system" {
		t.Errorf("the node's files contain %q and %q, want node and system", a, c)
	}
	if target, err := os.Readlink(node.path("etc/b")); target != "/dev/null" || err != nil {
		t.Errorf("target of the link: %q, error %v; want /dev/null", target, err)
	}
}

func TestCopySetsModes(t *testing.T) {
	from, to := t.TempDir(), tree(t.TempDir())
	put(t, from, map[string]string{"kind/bin/x": "program", "etc/y": "text"})
	if err := to.copy(from); err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, name := range []string{"kind/bin/x", "etc/y"} {
		info, err := os.Stat(to.path(name))
		if err != nil {
			t.Fatal(err)
		}
		got[name] = info.Mode().String() + " " + read(t, to.path(name))
	}
	if diff := cmp.Diff(map[string]string{
		"kind/bin/x": "-rwxr-xr-x program", "etc/y": "-rw-r--r-- text",
	}, got); diff != "" {
		t.Errorf("modes and contents (-want +got)\n%s", diff)
	}
}

func TestContainerdConfigurationForRestrictedRoot(t *testing.T) {
	runtime, node := t.TempDir(), tree(t.TempDir())
	ctr := "#!/bin/sh\necho '{\"process\":{\"args\":[\"sh\"],\"rlimits\":[1]}}'\n"
	if err := os.WriteFile(filepath.Join(runtime, "ctr"), []byte(ctr), 0o755); err != nil {
		t.Fatal(err)
	}
	current := "sandbox_image = \"theirs\"\nrestrict_oom_score_adj = false\nx = 1\n"
	put(t, string(node), map[string]string{"etc/containerd/config.toml": current})
	if err := node.configureContainerd(t.Context(), &Software{Runtime: runtime}); err != nil {
		t.Fatal(err)
	}
	want := "sandbox_image = \"" + pauseImage + "\"\nrestrict_oom_score_adj = true\nx = 1\n"
	if diff := cmp.Diff(want, read(t, node.path("etc/containerd/config.toml"))); diff != "" {
		t.Errorf("config.toml (-want +got)\n%s", diff)
	}
	var base map[string]any
	if err := json.Unmarshal([]byte(read(t, node.path("etc/containerd/cri-base.json"))),
		&base); err != nil {
		t.Fatal(err)
	}
	hook := map[string]any{"path": "/kind/bin/mount-product-files.sh"}
	if diff := cmp.Diff(map[string]any{
		"process": map[string]any{"args": []any{"sh"}},
		"hooks":   map[string]any{"createContainer": []any{hook}},
	}, base); diff != "" {
		t.Errorf("base specification (-want +got)\n%s", diff)
	}
	put(t, string(node), map[string]string{"etc/containerd/config.toml": "version = 9\n"})
	if err := node.configureContainerd(t.Context(), &Software{Runtime: runtime}); err == nil {
		t.Error("unknown configuration: no error, want an error")
	}
}
