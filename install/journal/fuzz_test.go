package journal_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/sluice-mesh/sluice/install/journal"
)

// FuzzOpen checks that any file is read, rejected because of its version, or renamed. A journal
// that was read can be written and read again.
func FuzzOpen(f *testing.F) {
	f.Add([]byte(`{"version":1,"entries":{"conf/a":{"kind":"edited","original":"e30=","mode":420,"written":["x"],"taken":["e30="]}}}`))
	f.Add([]byte(`{"version":1,"entries":null}`))
	f.Add([]byte(`{"version":9}`))
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, data []byte) {
		must(t, os.WriteFile(filepath.Join(dir, "journal.json"), data, 0o600))
		j, err := journal.Open(dir)
		switch {
		case j == nil && err == nil, err != nil && j != nil && !errors.Is(err, journal.ErrDamaged):
			t.Fatalf("journal %v, error %v; want either of them, or both only for ErrDamaged", j, err)
		case j == nil || len(j.Paths()) == 0:
			return // writing takes long, and is tested only for journals with entries
		}
		must(t, j.Record("conf/new", journal.Entry{Kind: journal.Created}))
		if got := open(t, dir).Paths(); len(got) != len(j.Paths()) {
			t.Fatalf("paths on disk %q, want %q", got, j.Paths())
		}
	})
}
