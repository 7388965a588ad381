package cluster

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// The function copy_files of the initramfs replaces existing files.
func TestVMInitReplacesExistingFiles(t *testing.T) {
	files, disk := t.TempDir(), t.TempDir()
	target := filepath.Join(disk, "etc/kept")
	if err := errors.Join(
		os.MkdirAll(filepath.Join(files, "etc/units"), 0o755), os.Mkdir(filepath.Join(disk, "etc"), 0o755),
		os.WriteFile(filepath.Join(files, "etc/name"), []byte("new"), 0o600),
		os.Symlink("../name", filepath.Join(files, "etc/units/link")),
		os.WriteFile(target, []byte("kept"), 0o644),
		// The target of an existing symbolic link is not overwritten.
		os.Symlink(target, filepath.Join(disk, "etc/name")),
	); err != nil {
		t.Fatal(err)
	}
	functions, _, found := strings.Cut(string(vmInit), "boot() {")
	if !found {
		t.Fatal("the script has no function boot")
	}
	script := functions + "\ncopy_files \"$1\" \"$2\""
	if out, err := exec.Command("sh", "-c", script, "sh", files, disk).CombinedOutput(); err != nil {
		t.Fatalf("copy_files: %v: %s", err, out)
	}
	for name, want := range map[string]string{
		"etc/name": "new", "etc/units/link": "new", "etc/kept": "kept",
	} {
		if got, err := os.ReadFile(filepath.Join(disk, name)); err != nil || string(got) != want {
			t.Errorf("%s: %q, error %v, want %q", name, got, err, want)
		}
	}
	if info, err := os.Lstat(filepath.Join(disk, "etc/name")); err != nil || info.Mode() != 0o600 {
		t.Errorf("etc/name: %v, error %v, want a regular file with the mode 0600", info, err)
	}
}
