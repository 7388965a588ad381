package record_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/plugin/record"
)

func refresh(t *testing.T, x *record.Index) {
	t.Helper()
	if err := x.Refresh(); err != nil {
		t.Fatal(err)
	}
}

// TestIndexReadsOnlyChangedRecords checks that an index has the contents of the store as of the
// last refresh, and reads only changed records.
func TestIndexReadsOnlyChangedRecords(t *testing.T) {
	dir := t.TempDir()
	s := record.In(dir)
	x := s.Index()
	refresh(t, x)
	if got := x.Of("7d1e"); len(got) > 0 {
		t.Errorf("records %v of an empty store, want none", got)
	}
	put(t, s, sample(key("a", "eth0")))
	put(t, s, sample(key("b", "eth0")))
	damaged := filepath.Join(dir, "attachments", "c:eth0.json")
	if err := os.WriteFile(damaged, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	refresh(t, x)
	first := x.Of("7d1e")
	if len(first) != 2 || first[0].ContainerID != "a" || first[1].ContainerID != "b" {
		t.Fatalf("records %v, want the records of the containers a and b", first)
	}
	if errs := x.Unusable(); len(errs) != 1 || !record.IsUnusable(errs[0]) ||
		!strings.Contains(errs[0].Error(), damaged) {
		t.Errorf("errors of unusable files: %v, want one that names %s", errs, damaged)
	}
	changed := sample(key("b", "eth0"))
	changed.Netns = "/run/netns/other"
	put(t, s, changed)
	refresh(t, x)
	if got := x.Of("7d1e"); got[0] != first[0] || got[1] == first[1] ||
		got[1].Netns != changed.Netns {
		t.Errorf("after a change of one record: %+v, want the same first and a new second record", got)
	}
	if err := s.Remove(key("a", "eth0")); err != nil {
		t.Fatal(err)
	}
	refresh(t, x)
	if got := x.Of("7d1e"); len(got) != 1 || got[0].ContainerID != "b" {
		t.Errorf("after a removal: %v, want the other record", got)
	}
	late := sample(key("b", "eth0"))
	late.Time = late.Time.Add(time.Hour)
	put(t, s, late)
	refresh(t, x)
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	refresh(t, x)
	if got := x.Latest(); !got.Equal(late.Time) {
		t.Errorf("the latest record is from %s, want %s", got, late.Time)
	}
	if got := x.Of("7d1e"); len(got) > 0 {
		t.Errorf("after the removal of all records: %v, want none", got)
	}
}

// TestLatestAfterTheClockWasSetBack checks that Latest returns the time of the last ADD even if the
// node's clock was set back before this ADD.
func TestLatestAfterTheClockWasSetBack(t *testing.T) {
	s := record.In(t.TempDir())
	x := s.Index()
	for _, seconds := range []int64{7200, 100, 200} {
		r := sample(key(fmt.Sprint("c", seconds), "eth0"))
		r.Time = time.Unix(seconds, 0)
		put(t, s, r)
		refresh(t, x)
		refresh(t, x)
		if got := x.Latest(); got.Unix() != seconds {
			t.Errorf("the latest record is from %d, want %d", got.Unix(), seconds)
		}
	}
}

// TestIndexFindsAChangeInTheSameTick checks that Refresh finds a change that is made in the same
// tick of the kernel's clock as the previous Refresh.
func TestIndexFindsAChangeInTheSameTick(t *testing.T) {
	s := record.In(t.TempDir())
	x := s.Index()
	for i := range 200 {
		r := sample(key("a", "eth0"))
		r.Time = time.Unix(int64(i), 0)
		put(t, s, r)
		refresh(t, x)
		if got := x.Of("7d1e"); len(got) != 1 || got[0].Time.Unix() != int64(i) {
			t.Fatalf("round %d: records %v, want the one that was just written", i, got)
		}
	}
}

// TestIndexFindsAChangeDuringARefresh writes a record during a Refresh without a change of the
// directory's modification time, and checks that the next Refresh finds the record. Refresh expects
// such a change only for some milliseconds after the modification time. On a busy machine this time
// may pass before the Refresh begins, and the round then fails: one successful round is sufficient.
func TestIndexFindsAChangeDuringARefresh(t *testing.T) {
	root := t.TempDir()
	s := record.In(root)
	for i := range 1500 {
		put(t, s, sample(key(fmt.Sprint("a", i), "eth0")))
	}
	dir := filepath.Join(root, "attachments")
	late := sample(key("b", "eth0"))
	late.Pod.UID = "another"
	for range 20 {
		x := s.Index()
		listed := watchListing(t, dir)
		tick := time.Now()
		setTime := func() {
			if err := os.Chtimes(dir, tick, tick); err != nil {
				t.Error(err)
			}
		}
		setTime()
		var group sync.WaitGroup
		group.Go(func() {
			listed()
			put(t, s, late)
			setTime()
		})
		refresh(t, x)
		group.Wait()
		refresh(t, x)
		if len(x.Of("another")) == 1 {
			return
		}
		if err := s.Remove(late.Key); err != nil {
			t.Fatal(err)
		}
	}
	t.Error("the second Refresh has found the record in none of the rounds")
}

// watchListing returns a function that waits until a process has listed the directory.
func watchListing(t *testing.T, dir string) func() {
	t.Helper()
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(fd) })
	if _, err := unix.InotifyAddWatch(fd, dir, unix.IN_CLOSE_NOWRITE); err != nil {
		t.Fatal(err)
	}
	return func() {
		if _, err := unix.Read(fd, make([]byte, 4096)); err != nil {
			t.Error(err)
		}
	}
}

func TestIndexKeepsRecordsDuringOtherChanges(t *testing.T) {
	s := record.In(t.TempDir())
	x := s.Index()
	put(t, s, sample(key("b", "eth0")))
	var group sync.WaitGroup
	group.Go(func() {
		for range 100 {
			put(t, s, sample(key("a", "eth0")))
			if err := s.Remove(key("a", "eth0")); err != nil {
				t.Error(err)
			}
		}
	})
	for range 2 {
		group.Go(func() {
			for range 100 {
				if err := x.Refresh(); err != nil {
					t.Error(err)
				}
				if got := x.Of("7d1e"); len(got) == 0 {
					t.Error("the record of container b is missing")
				}
			}
		})
	}
	group.Wait()
}

// BenchmarkRefreshUnchanged measures a refresh without a change, which every audit of a pod
// includes.
func BenchmarkRefreshUnchanged(b *testing.B) {
	s := record.In(b.TempDir())
	for i := range 250 {
		put(b, s, sample(key(string(rune('a'+i%26))+string(rune('a'+i/26)), "eth0")))
	}
	x := s.Index()
	for deadline := time.Now().Add(time.Second); time.Now().Before(deadline); {
		if err := x.Refresh(); err != nil {
			b.Fatal(err)
		}
	}
	for b.Loop() {
		if err := x.Refresh(); err != nil {
			b.Fatal(err)
		}
	}
}
