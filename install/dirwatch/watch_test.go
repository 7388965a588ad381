package dirwatch_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/sluice-mesh/sluice/install/dirwatch"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestChangesAreNoticed(t *testing.T) {
	for name, change := range map[string]func(dir string) error{
		"a file is created": func(dir string) error {
			return os.WriteFile(filepath.Join(dir, "new"), nil, 0o600)
		},
		"a file is written": func(dir string) error {
			return os.WriteFile(filepath.Join(dir, "old"), []byte("x"), 0o600)
		},
		"a file is removed": func(dir string) error {
			return os.Remove(filepath.Join(dir, "old"))
		},
		"a file is renamed": func(dir string) error {
			return os.Rename(filepath.Join(dir, "old"), filepath.Join(dir, "new"))
		},
		"a file is made writable": func(dir string) error {
			return os.Chmod(filepath.Join(dir, "old"), 0o666)
		},
		"the directory is removed": os.RemoveAll,
		"the directory is renamed": func(dir string) error {
			return os.Rename(dir, dir+"-elsewhere")
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := newDir(t)
			w, woken := newWatch(dir)
			defer w.Close()
			if err := w.Renew(); err != nil {
				t.Fatal(err)
			}
			if err := change(dir); err != nil {
				t.Fatal(err)
			}
			wait(t, woken)
		})
	}
}

func TestDirectoryThatIsCreatedLateOrReplacedIsWatched(t *testing.T) {
	parent := t.TempDir()
	dir := filepath.Join(parent, "late")
	w, woken := newWatch(dir)
	defer w.Close()
	if err := w.Renew(); err == nil {
		t.Error("Renew returns no error for a missing directory")
	}
	for range 2 {
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := w.Renew(); err != nil {
			t.Fatal(err)
		}
		for len(woken) > 0 { // notifications of the previous directory
			<-woken
		}
		if err := os.WriteFile(filepath.Join(dir, "new"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		wait(t, woken)
		if err := os.RemoveAll(dir); err != nil {
			t.Fatal(err)
		}
		wait(t, woken)
	}
}

func TestCloseBeforeTheFirstRenewWakesNobody(t *testing.T) {
	w := dirwatch.New(func() { t.Error("wake was called before the first Renew") }, newDir(t))
	w.Close()
}

// newDir creates a directory with a file.
func newDir(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "dir")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "old"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

// newWatch returns a watch, and a channel with its notifications.
func newWatch(dir string) (*dirwatch.Watch, chan struct{}) {
	woken := make(chan struct{}, 100)
	return dirwatch.New(func() { woken <- struct{}{} }, dir), woken
}

func wait(t *testing.T, woken <-chan struct{}) {
	t.Helper()
	select {
	case <-woken:
	case <-time.After(time.Minute):
		t.Fatal("wake was not called within a minute of the change")
	}
}
