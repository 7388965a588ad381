package build

import (
	"os"
	"path/filepath"
	"testing"
)

func TestProfilesOfMissingProgramsAreRemoved(t *testing.T) {
	root := tree(t.TempDir())
	for _, file := range []string{
		"etc/apparmor.d/runc", "etc/apparmor.d/firefox", "etc/apparmor.d/abstractions/base",
		"usr/sbin/runc",
	} {
		if err := root.write(file, nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := root.removeUnusedProfiles(); err != nil {
		t.Fatal(err)
	}
	for file, want := range map[string]bool{"runc": true, "firefox": false, "abstractions/base": true} {
		if _, err := os.Stat(filepath.Join(string(root), "etc/apparmor.d", file)); (err == nil) != want {
			t.Errorf("%s exists: %v, want %v", file, err == nil, want)
		}
	}
}
