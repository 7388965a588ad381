package journal_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/install/journal"
	"github.com/sluice-mesh/sluice/plugin/file"
	"github.com/sluice-mesh/sluice/plugin/file/filetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func open(t *testing.T, dir string) *journal.Journal {
	t.Helper()
	j, err := journal.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	return j
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestJournalEntriesAreOnDisk(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	want := journal.Entry{
		Kind: journal.Converted, Original: []byte("\x00any\xff bytes\r\n"), From: "10-a.conf",
		Mode: 0o640, Written: []string{"a", "b"},
		Replaced: [][]byte{[]byte(`{"type" :"istio-cni"}`)},
	}
	must(t, open(t, dir).Record("conf/b", want))
	must(t, open(t,
		dir).Record("conf/a", journal.Entry{Kind: journal.Created, Written: []string{}}))
	j := open(t, dir)
	got, ok := j.Entry("conf/b")
	if diff := cmp.Diff(want, got); diff != "" || !ok {
		t.Errorf("found %t, want true; entry (-want +got):\n%s", ok, diff)
	}
	if diff := cmp.Diff([]string{"conf/a", "conf/b"}, j.Paths()); diff != "" {
		t.Errorf("paths (-want +got):\n%s", diff)
	}
	if err := j.Discard(); err == nil {
		t.Error("a journal with entries was discarded")
	}
	must(t, j.Forget("conf/a", "conf/none"))
	if got := open(t, dir).Paths(); len(got) != 1 || got[0] != "conf/b" {
		t.Errorf("remaining entries: %v, want conf/b", got)
	}
	must(t, j.Forget("conf/b"))
	must(t, j.Discard())
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 0 {
		t.Errorf("after Discard the directory contains %v, want nothing; error %v", entries, err)
	}
	info, err := os.Stat(dir)
	if err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("mode of the state directory %v, want 0700; error %v", info.Mode(), err)
	}
}

func TestFailedRecordIsNotCached(t *testing.T) {
	if !filetest.Private(t) {
		return
	}
	dir := filetest.Disk(t, "64k")
	j := open(t, dir)
	must(t, j.Record("a", journal.Entry{Kind: journal.Created}))
	filetest.Fill(t, dir)
	for _, path := range []string{"b", "a"} {
		if err := j.Record(path, journal.Entry{
			Kind: journal.Edited, Original: make([]byte, 8<<10),
		}); !file.IsFull(err) {
			t.Errorf("record %s on a full disk: error %v, want that the disk is full", path, err)
		}
	}
	for _, j := range []*journal.Journal{j, open(t, dir)} {
		if e, ok := j.Entry("a"); !ok || e.Kind != journal.Created || len(j.Paths()) != 1 {
			t.Errorf("paths %v, entry %+v; want only the first entry of a", j.Paths(), e)
		}
	}
}

func TestDamagedJournalIsRenamed(t *testing.T) {
	dir := t.TempDir()
	for _, damage := range []string{"", "{", `{"version":1,"entries":[]}`, `{}`} {
		must(t, os.WriteFile(filepath.Join(dir, "journal.json"), []byte(damage), 0o600))
		j, err := journal.Open(dir)
		if !errors.Is(err, journal.ErrDamaged) || j == nil || len(j.Paths()) != 0 {
			t.Fatalf("%q: journal %v, error %v; want an empty journal and ErrDamaged", damage, j, err)
		}
		if kept, err := os.ReadFile(filepath.Join(dir, "journal.damaged")); err != nil ||
			string(kept) != damage {
			t.Errorf("journal.damaged contains %q, want the damaged journal; error %v", kept, err)
		}
		must(t, j.Record("a", journal.Entry{Kind: journal.Created}))
		open(t, dir)
	}
	must(t, os.WriteFile(filepath.Join(dir, "journal.json"), []byte(`{"version":2}`), 0o600))
	if j, err := journal.Open(dir); err == nil || errors.Is(err, journal.ErrDamaged) || j != nil {
		t.Errorf("a journal of a newer version: journal %v, error %v; want only an error other than ErrDamaged",
			j, err)
	}
}

// TestUnreadableJournalIsRenamed covers a damaged disk: the agent must continue without the
// journal.
func TestUnreadableJournalIsRenamed(t *testing.T) {
	for name, damage := range map[string]func(path string) error{
		"a directory": func(path string) error { return os.Mkdir(path, 0o700) },
		"a pipe":      func(path string) error { return unix.Mkfifo(path, 0o600) },
		"a socket":    func(path string) error { return unix.Mknod(path, unix.S_IFSOCK|0o600, 0) },
		"a file that is too large": func(path string) error {
			return os.WriteFile(path, make([]byte, file.MaxRegular+1), 0o600)
		},
		"a link to itself": func(path string) error {
			return os.Symlink(filepath.Base(path), path)
		},
		// Reading address 0 of a process fails with EIO, as reading from a damaged disk does.
		"a file that the disk cannot read": func(path string) error {
			return os.Symlink("/proc/self/mem", path)
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			must(t, damage(filepath.Join(dir, "journal.json")))
			j, err := journal.Open(dir)
			if !errors.Is(err, journal.ErrDamaged) || j == nil {
				t.Fatalf("journal %v, error %v; want an empty journal and ErrDamaged", j, err)
			}
			must(t, j.Record("a", journal.Entry{Kind: journal.Created}))
			if got := open(t, dir).Paths(); len(got) != 1 {
				t.Errorf("paths on disk %q, want one", got)
			}
		})
	}
}

func TestWrittenByAgent(t *testing.T) {
	original, first, second := []byte("original"), []byte("written"), []byte("newer")
	e := journal.Entry{Kind: journal.Edited, Original: original}.WithChange(original, first)
	if e.WrittenByAgent(original) || !e.WrittenByAgent(first) || e.WrittenByAgent(nil) {
		t.Errorf("%+v: want only the new content as the agent's", e)
	}
	if e = e.WithChange(first, second); !e.WrittenByAgent(first) || !e.WrittenByAgent(second) {
		t.Errorf("%+v: want the content before and after the last change as the agent's", e)
	}
	if e = e.WithChange(second, second); e.WrittenByAgent(first) || len(e.Written) != 1 {
		t.Errorf("content before the last change is still recorded: %+v", e)
	}
	if e = e.WithChange([]byte("foreign"), first); len(e.Written) != 1 {
		t.Errorf("%+v: want only the new content as the agent's, not the foreign content", e)
	}
}

func TestLockExcludesOtherProcesses(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	first, err := journal.Acquire(t.Context(), dir)
	must(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := journal.Acquire(ctx, dir); !errors.Is(err, context.DeadlineExceeded) ||
		!strings.Contains(err.Error(), "last acquired by process ") {
		t.Errorf("a second lock: error %v, want a timeout that names the process", err)
	}
	acquired := make(chan error, 1)
	go func() { // waits for the lock of a file that the first holder then removes
		second, err := journal.Acquire(t.Context(), dir)
		if err == nil {
			if countDescriptorsOf(t, filepath.Join(dir, "lock")) != 1 {
				err = errors.New("another process could acquire a lock: the locked file was removed")
			}
			err = errors.Join(err, second.Release())
		}
		acquired <- err
	}()
	for countDescriptorsOf(t, filepath.Join(dir, "lock")) < 2 {
		runtime.Gosched()
	}
	must(t, first.Discard())
	must(t, <-acquired)
}

// countDescriptorsOf returns the number of descriptors of this process that refer to a file.
func countDescriptorsOf(t *testing.T, path string) int {
	t.Helper()
	open, err := os.ReadDir("/proc/self/fd")
	must(t, err)
	n := 0
	for _, fd := range open {
		if target, _ := os.Readlink("/proc/self/fd/" + fd.Name()); target == path {
			n++
		}
	}
	return n
}

// TestAReadOnlyStateDirectoryCanBeRead checks a state directory that has become read-only: its lock
// can be acquired, its journal can be read, and recording an unchanged entry succeeds.
func TestAReadOnlyStateDirectoryCanBeRead(t *testing.T) {
	if !filetest.Private(t) {
		return
	}
	dir := t.TempDir()
	entry := journal.Entry{
		Kind: journal.Edited, Original: []byte("o"), Written: []string{"w"},
		Replaced: [][]byte{[]byte("t")},
	}
	lock, err := journal.Acquire(t.Context(), dir)
	must(t, err)
	must(t, lock.ReadOnly())
	must(t, open(t, dir).Record("a", entry))
	must(t, lock.Release())
	one, err := journal.RegisterAgent(dir)
	must(t, err)
	must(t, one.Unregister())

	writable := filetest.ReadOnly(t, dir)
	lock, err = journal.Acquire(t.Context(), dir)
	must(t, err)
	if err := lock.ReadOnly(); !file.IsReadOnly(err) {
		t.Errorf("ReadOnly returns %v, want the error of a read-only file system", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := journal.Acquire(ctx, dir); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a second lock: error %v, want a timeout", err)
	}
	j := open(t, dir)
	must(t, j.Record("a", entry))
	if err := j.Record("a", journal.Entry{Kind: journal.Created}); !file.IsReadOnly(err) {
		t.Errorf("Record of another entry returns %v, want the error of a read-only file system", err)
	}
	present, err := journal.RegisterAgent(dir)
	must(t, err)
	if err := journal.CheckNoAgent(dir); !errors.Is(err, journal.ErrAgentRunning) {
		t.Errorf("CheckNoAgent with a registered agent returns %v, want ErrAgentRunning", err)
	}
	must(t, present.Unregister())
	must(t, lock.Release())
	writable()

	empty := t.TempDir()
	filetest.ReadOnly(t, empty)
	if _, err := journal.Acquire(t.Context(), empty); !file.IsReadOnly(err) {
		t.Errorf("Acquire without an earlier lock file: error %v, want the error of a read-only file system", err)
	}
}

func TestCheckNoAgentFindsAnyRegisteredAgent(t *testing.T) {
	dir := t.TempDir()
	must(t, journal.CheckNoAgent(dir))
	one, err := journal.RegisterAgent(dir)
	must(t, err)
	two, err := journal.RegisterAgent(dir) // as during a rolling update
	must(t, err)
	must(t, one.Unregister())
	if err := journal.CheckNoAgent(dir); !errors.Is(err, journal.ErrAgentRunning) {
		t.Errorf("CheckNoAgent with a registered agent returns %v, want ErrAgentRunning", err)
	}
	must(t, two.Unregister())
	must(t, journal.CheckNoAgent(dir))
}

// TestDiscardKeepsRegistrations checks that an agent that registers during an uninstallation,
// before or while the state directory is removed, is noticed by later uninstallations.
func TestDiscardKeepsRegistrations(t *testing.T) {
	t.Run("an agent registers before the removal", func(t *testing.T) {
		dir := t.TempDir()
		lock, err := journal.Acquire(t.Context(), dir)
		must(t, err)
		agent, err := journal.RegisterAgent(dir)
		must(t, err)
		must(t, lock.Discard())
		if err := journal.CheckNoAgent(dir); !errors.Is(err, journal.ErrAgentRunning) {
			t.Errorf("CheckNoAgent with a registered agent returns %v, want ErrAgentRunning", err)
		}
		must(t, agent.Unregister())
	})
	t.Run("an agent registers during the removal", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, "agents")
			removing, err := os.Create(path)
			must(t, err)
			must(t, unix.Flock(int(removing.Fd()), unix.LOCK_EX|unix.LOCK_NB))
			registered := make(chan error, 1)
			var agent *journal.Registration
			go func() {
				var err error
				agent, err = journal.RegisterAgent(dir)
				registered <- err
			}()
			synctest.Wait()
			must(t, os.Remove(path))
			must(t, removing.Close())
			must(t, <-registered)
			if err := journal.CheckNoAgent(dir); !errors.Is(err, journal.ErrAgentRunning) {
				t.Errorf("CheckNoAgent with a registered agent returns %v, want ErrAgentRunning", err)
			}
			must(t, agent.Unregister())
		})
	})
}

// TestLinkToAMissingDirectoryDoesNotBlock checks that a link in place of the lock file does not
// block Acquire. In a bubble of synctest, time does not pass for a loop that does not wait.
func TestLinkToAMissingDirectoryDoesNotBlock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		must(t, os.Symlink(filepath.Join(dir, "missing", "lock"), filepath.Join(dir, "lock")))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := journal.Acquire(ctx, dir); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("Acquire returns the error %v, want that the file does not exist", err)
		}
	})
}

// TestPipesDoNotBlock checks that pipes in place of the files that are locked block no process.
func TestPipesDoNotBlock(t *testing.T) {
	dir := t.TempDir()
	must(t, unix.Mkfifo(filepath.Join(dir, "agents"), 0o600))
	must(t, unix.Mkfifo(filepath.Join(dir, "lock"), 0o600))
	must(t, journal.CheckNoAgent(dir))
	agent, err := journal.RegisterAgent(dir)
	must(t, err)
	if err := journal.CheckNoAgent(dir); !errors.Is(err, journal.ErrAgentRunning) {
		t.Errorf("CheckNoAgent with a registered agent returns %v, want ErrAgentRunning", err)
	}
	must(t, agent.Unregister())
	lock, err := journal.Acquire(t.Context(), dir)
	must(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := journal.Acquire(ctx, dir); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a second lock: error %v, want a timeout", err)
	}
	must(t, lock.Discard())
}

// TestRegisterAgentWaitsForACheck checks that RegisterAgent waits for the lock that CheckNoAgent
// holds for a moment, but not forever.
func TestRegisterAgentWaitsForACheck(t *testing.T) {
	dir := t.TempDir()
	check, err := os.OpenFile(filepath.Join(dir, "agents"), os.O_RDWR|os.O_CREATE, 0o600)
	must(t, err)
	defer check.Close()
	for name, isReleased := range map[string]bool{
		"a check that ends": true, "a process that keeps the lock": false,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				must(t, unix.Flock(int(check.Fd()), unix.LOCK_EX|unix.LOCK_NB))
				var one *journal.Registration
				done := make(chan error, 1)
				go func() {
					var err error
					one, err = journal.RegisterAgent(dir)
					done <- err
				}()
				synctest.Wait()
				if isReleased {
					must(t, unix.Flock(int(check.Fd()), unix.LOCK_UN))
				}
				if err := <-done; (err == nil) != isReleased {
					t.Fatalf("RegisterAgent returns %v, want an error: %t", err, !isReleased)
				}
				if isReleased {
					must(t, one.Unregister())
				}
			})
		})
	}
}

// TestAnotherCheckIsNotAnAgent checks that CheckNoAgent waits for the lock that another check holds
// for a moment, and then finds the agents on the current file.
func TestAnotherCheckIsNotAnAgent(t *testing.T) {
	for name, row := range map[string]struct {
		meanwhile func(t *testing.T, path string)
		want      error
	}{
		"a check": {func(*testing.T, string) {}, nil},
		"a check that removes the file": {
			func(t *testing.T, path string) { must(t, os.Remove(path)) }, nil,
		},
		"a check that removes the file, and an agent registers": {
			func(t *testing.T, path string) {
				must(t, os.Remove(path))
				agent, err := journal.RegisterAgent(filepath.Dir(path))
				must(t, err)
				t.Cleanup(func() { must(t, agent.Unregister()) })
			}, journal.ErrAgentRunning,
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				dir := t.TempDir()
				path := filepath.Join(dir, "agents")
				other, err := os.Create(path)
				must(t, err)
				must(t, unix.Flock(int(other.Fd()), unix.LOCK_EX|unix.LOCK_NB))
				done := make(chan error, 1)
				go func() { done <- journal.CheckNoAgent(dir) }()
				time.Sleep(5 * time.Millisecond)
				row.meanwhile(t, path)
				must(t, other.Close())
				if err := <-done; !errors.Is(err, row.want) {
					t.Errorf("CheckNoAgent returns %v, want %v", err, row.want)
				}
			})
		})
	}
}
