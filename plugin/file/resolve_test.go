package file_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/sluice-mesh/sluice/plugin/file"
)

func TestResolveIn(t *testing.T) {
	root := t.TempDir()
	for _, dir := range []string{"etc/cni/net.d", "opt/other"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for name, target := range map[string]string{
		"absolute": "/opt/other", "etc/relative": "../opt/other", "above": "../../../../opt",
		"etc/chain": "/absolute",
		"loop":      "/loop", "dangling": "/none",
	} {
		link(t, target, filepath.Join(root, name))
	}
	for path, want := range map[string]string{
		"/etc/cni/net.d": "/etc/cni/net.d", "/etc//cni/./net.d/": "/etc/cni/net.d",
		"/etc/../../opt": "/opt", "/": "/",
		"/absolute": "/opt/other", "/etc/relative": "/opt/other", "/above/other": "/opt/other",
		"/etc/chain":    "/opt/other",
		"/etc/chain/..": "/opt",
	} {
		if got, err := file.ResolveIn(root, path); err != nil || got != filepath.Join(root, want) {
			t.Errorf("%s: %s, error %v; want %s", path, got, err, want)
		}
	}
	for path, want := range map[string]error{
		"/none": fs.ErrNotExist, "/dangling": fs.ErrNotExist, "/absolute/none": fs.ErrNotExist,
		"/loop": syscall.ELOOP,
	} {
		if got, err := file.ResolveIn(root, path); !errors.Is(err, want) {
			t.Errorf("%s: %s, error %v; want %v", path, got, err, want)
		}
	}
}
