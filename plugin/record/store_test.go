package record_test

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"github.com/sluice-mesh/sluice/compat"
	"github.com/sluice-mesh/sluice/plugin/file"
	"github.com/sluice-mesh/sluice/plugin/record"
	"github.com/sluice-mesh/sluice/plugin/record/recordtest"
	"github.com/sluice-mesh/sluice/rules"
)

func key(id, ifname string) record.Key { return record.Key{ContainerID: id, IfName: ifname} }

var compareAddrs = cmpopts.EquateComparable(netip.Addr{}, netip.Prefix{})

// sample returns a record with a value in every field.
func sample(k record.Key) record.Record {
	r := rules.DefaultRedirect()
	r.InboundPorts.All = true
	r.OutboundCIDRs.Prefixes = []netip.Prefix{
		netip.MustParsePrefix("10.1.2.3/8"), netip.MustParsePrefix("2001:db8::/32"),
	}
	r.InboundExcludePorts = rules.Singles[uint16](15020, 15090)
	r.ExcludeInterfaces = []rules.InterfaceName{{Name: "tap", Prefix: true}}
	r.DNS = rules.DNS{Capture: true, Servers: []netip.Addr{netip.MustParseAddr("10.96.0.10")}}
	r.StrictIstio()
	return record.Record{
		Key: k, Network: "e2e", Netns: "/run/netns/cni-1",
		Pod:     record.Pod{Namespace: "shop", Name: "orders", UID: "7d1e"},
		Outcome: "redirect", Reason: "mesh-pod", Redirect: &r, Backend: compat.BackendLegacy,
		Time: time.Date(2026, 11, 20, 9, 30, 0, int(123*time.Millisecond), time.UTC),
	}
}

func put(t testing.TB, s record.Store, r record.Record) {
	t.Helper()
	if err := s.Put(r); err != nil {
		t.Fatal(err)
	}
}

// TestRecordsAreKept checks that a stored record is returned until it is removed, and that only the
// owner can read its file.
func TestRecordsAreKept(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	s := record.In(dir)
	if _, err := s.Get(key("a", "eth0")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("before the first record: error %v, want fs.ErrNotExist", err)
	}
	want := sample(key("a", "eth0"))
	put(t, s, record.Record{Key: want.Key, Outcome: "skip"})
	put(t, s, want)
	put(t, s, record.Record{Key: key("a", "net1"), Outcome: "skip"})
	got, err := s.Get(want.Key)
	if diff := cmp.Diff(want, got, compareAddrs); diff != "" || err != nil {
		t.Errorf("error %v, record (-want +got):\n%s", err, diff)
	}
	if !rules.Equal(rules.MustCompile(*want.Redirect), rules.MustCompile(*got.Redirect)) {
		t.Error("the stored record results in other rules")
	}
	if info, err := os.Stat(filepath.Join(dir, "attachments", "a:eth0.json")); err != nil ||
		info.Mode() != 0o600 {
		t.Errorf("file: %v, error %v, want mode 0600", info, err)
	}
	if info, err := os.Stat(filepath.Join(dir, "attachments")); err != nil ||
		info.Mode().Perm() != 0o700 {
		t.Errorf("directory: %v, error %v, want mode 0700", info, err)
	}
	list, err := recordtest.List(s)
	if err != nil || len(list) != 2 || list[0].Key != want.Key || list[1].IfName != "net1" {
		t.Errorf("List: %+v, error %v, want both records", list, err)
	}
	// Keys ignores files with other names.
	for _, name := range []string{".a:eth0.json.1", "a:eth0", "a.json", "a:.json", ":eth0.json"} {
		if err := os.WriteFile(filepath.Join(dir, "attachments", name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	keys, err := s.Keys()
	if diff := cmp.Diff([]record.Key{want.Key, key("a", "net1")}, keys); diff != "" || err != nil {
		t.Errorf("Keys: error %v, keys (-want +got):\n%s", err, diff)
	}
	for range 2 {
		if err := s.Remove(want.Key); err != nil {
			t.Error(err)
		}
	}
	if _, err := s.Get(want.Key); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("after Remove: error %v, want fs.ErrNotExist", err)
	}
	if keys, err := s.Keys(); err != nil || len(keys) != 1 {
		t.Errorf("Keys after Remove: %+v, error %v, want one key", keys, err)
	}
}

// TestEveryRedirectIsKept checks that Get returns the parameters that Put has stored.
func TestEveryRedirectIsKept(t *testing.T) {
	s := record.In(t.TempDir())
	rapid.Check(t, func(t *rapid.T) {
		r := rules.DefaultRedirect()
		ids := rapid.SliceOf(rapid.Custom(func(t *rapid.T) rules.IDRange {
			first := rapid.Uint32().Draw(t, "first")
			return rules.IDRange{
				First: first, Last: rapid.Uint32Range(first, math.MaxUint32).Draw(t, "last"),
			}
		}))
		prefixes := rapid.SliceOf(rapid.Custom(func(t *rapid.T) netip.Prefix {
			if rapid.Bool().Draw(t, "IPv4") {
				return netip.PrefixFrom(netip.AddrFrom4([4]byte(rapid.SliceOfN(rapid.Byte(), 4,
					4).Draw(t, "address"))), rapid.IntRange(0, 32).Draw(t, "bits"))
			}
			return netip.PrefixFrom(netip.AddrFrom16([16]byte(rapid.SliceOfN(rapid.Byte(), 16,
				16).Draw(t, "address"))), rapid.IntRange(0, 128).Draw(t, "bits"))
		}))
		r.ProxyUIDs = append(r.ProxyUIDs, ids.Draw(t, "uids")...)
		r.OwnerGroupsExclude = ids.Draw(t, "groups")
		r.OutboundCIDRs.Prefixes, r.OutboundExcludeCIDRs = prefixes.Draw(t, "include"),
			prefixes.Draw(t, "exclude")
		r.DropInvalid, r.IPv6, r.DNS.Capture = rapid.Bool().Draw(t, "drop"),
			rapid.Bool().Draw(t, "IPv6"), rapid.Bool().Draw(t, "DNS")
		if err := r.Validate(); err != nil {
			t.Fatal(err)
		}
		want := record.Record{Key: key("a", "eth0"), Redirect: &r}
		if err := s.Put(want); err != nil {
			t.Fatal(err)
		}
		got, err := s.Get(want.Key)
		if diff := cmp.Diff(want, got, compareAddrs, cmpopts.EquateEmpty()); diff != "" || err != nil {
			t.Fatalf("error %v, record (-want +got):\n%s", err, diff)
		}
	})
}

// TestUnusableRecordsAreReported checks that an invalid file, or a file with the record of another
// attachment, is reported as unusable, and does not hide the other records.
func TestUnusableRecordsAreReported(t *testing.T) {
	for name, text := range map[string]string{
		"an empty file": "", "a file that is not JSON": "{",
		"a record of another attachment":   `{"containerID":"b","ifname":"eth0"}`,
		"a record with invalid parameters": `{"containerID":"a","ifname":"eth0","redirect":{"Mode":"REDIRECT"}}`,
		// Otherwise the pod would count as a pod outside the mesh.
		"a record of a redirection without parameters": `{"containerID":"a","ifname":"eth0","outcome":"redirect","reason":"mesh-pod"}`,
		"a record without an outcome":                  `{"containerID":"a","ifname":"eth0"}`,
		"a file that is too large":                     strings.Repeat(" ", file.MaxRegular+1),
		"a record with an unknown backend":             `{"containerID":"a","ifname":"eth0","outcome":"skip","engine":"nfu"}`,
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			s := record.In(dir)
			put(t, s, sample(key("c", "eth0")))
			if err := os.WriteFile(filepath.Join(dir, "attachments", "a:eth0.json"), []byte(text),
				0o600); err != nil {
				t.Fatal(err)
			}
			if _, err := s.Get(key("a", "eth0")); !record.IsUnusable(err) {
				t.Errorf("Get: error %v, want an unusable record", err)
			}
			if list, err := recordtest.List(s); len(list) != 1 || !record.IsUnusable(err) {
				t.Errorf("List: %+v, error %v, want the other record and an unusable one", list, err)
			}
			if pruned, err := s.Prune("e2e", []record.Key{key("c", "eth0")}); len(pruned) > 0 ||
				err != nil {
				t.Errorf("Prune: %v, error %v, want neither", pruned, err)
			}
			if list, err := recordtest.List(s); len(list) != 1 || err != nil {
				t.Errorf("List after Prune: %+v, error %v, want only the other record", list, err)
			}
		})
	}
}

// TestPipeInPlaceOfARecordDoesNotBlock checks that ADD does not wait for a writer of the pipe, and
// can replace it.
func TestPipeInPlaceOfARecordDoesNotBlock(t *testing.T) {
	dir := t.TempDir()
	s, k := record.In(dir), key("a", "eth0")
	put(t, s, sample(key("b", "eth0")))
	if err := unix.Mkfifo(filepath.Join(dir, "attachments", "a:eth0.json"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Get(k); !record.IsUnusable(err) {
		t.Errorf("Get: error %v, want an unusable record", err)
	}
	put(t, s, sample(k))
	if _, err := s.Get(k); err != nil {
		t.Errorf("Get after Put: error %v, want none", err)
	}
}

// TestRecordsOfNewerProgramsAreUnusable checks that a record without a version, or with additional
// fields, can be read. A record of a newer program is reported as unusable, and Prune keeps it.
func TestRecordsOfNewerProgramsAreUnusable(t *testing.T) {
	dir := t.TempDir()
	s, k := record.In(dir), key("a", "eth0")
	file := filepath.Join(dir, "attachments", "a:eth0.json")
	put(t, s, sample(k))
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	const version = `{"version":1,`
	if !strings.HasPrefix(string(text), version) {
		t.Fatalf("the stored record is %s, want one that begins with %s", text, version)
	}
	write := func(begin string) {
		t.Helper()
		changed := strings.Replace(string(text), version, begin, 1)
		if err := os.WriteFile(file, []byte(changed), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(`{`)
	if r, err := s.Get(k); err != nil || !cmp.Equal(r, sample(k), compareAddrs) {
		t.Errorf("without a version: %+v, error %v, want the stored record", r, err)
	}
	write(`{"version":1,"added":{"later":true},`)
	if r, err := s.Get(k); err != nil || !cmp.Equal(r, sample(k), compareAddrs) {
		t.Errorf("with an added field: %+v, error %v, want the stored record", r, err)
	}
	for _, newer := range []string{`{"version":2,`, `{"version":2,"outcome":{"of":"another type"},`} {
		write(newer)
		_, err := s.Get(k)
		if !record.IsUnusable(err) || !strings.HasSuffix(err.Error(), "a:eth0.json: unusable record: "+
			"version 2 was written by a newer program; this one understands 1") {
			t.Errorf("a record that begins with %s: error %v, want a newer version", newer, err)
		}
		if pruned, err := s.Prune("e2e", nil); len(pruned) > 0 || err != nil {
			t.Errorf("Prune: %v, error %v, want neither", pruned, err)
		}
		if _, err := os.Stat(file); err != nil {
			t.Error(err)
		}
	}
	if err := s.Remove(k); err != nil {
		t.Error(err)
	}
	if _, err := s.Get(k); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("after Remove: error %v, want fs.ErrNotExist", err)
	}
}

// TestOthersOmitsTheGivenAttachment checks that Others does not read the record of the given
// attachment, which may be unusable.
func TestOthersOmitsTheGivenAttachment(t *testing.T) {
	dir := t.TempDir()
	s := record.In(dir)
	own, other, another := key("a", "eth0"), key("a", "net1"), key("ab", "net1")
	for _, k := range []record.Key{other, another} {
		put(t, s, sample(k))
	}
	if err := os.WriteFile(filepath.Join(dir, "attachments", "a:eth0.json"), []byte("{"),
		0o600); err != nil {
		t.Fatal(err)
	}
	if list, err := s.Others(own); len(list) != 1 || err != nil || list[0].Key != other {
		t.Errorf("attachments other than %s: %+v, error %v, want %s", own, list, err, other)
	}
	if list, err := s.Others(other); len(list) != 0 || !record.IsUnusable(err) {
		t.Errorf("attachments other than %s: %+v, error %v, want an unusable record", other, list, err)
	}
}

// TestLeftoversOfAKilledProcessAreRemoved checks that the incomplete file of a killed process is
// not a record, and that the next Remove or Prune removes the file.
func TestLeftoversOfAKilledProcessAreRemoved(t *testing.T) {
	dir := t.TempDir()
	s := record.In(dir)
	put(t, s, sample(key("b", "eth0")))
	for _, clean := range []func() error{
		func() error { return s.Remove(key("a", "eth0")) },
		func() error { _, err := s.Prune("e2e", []record.Key{key("b", "eth0")}); return err },
	} {
		remaining := filepath.Join(dir, "attachments", ".a:eth0.json.123")
		if err := os.WriteFile(remaining, []byte(`{"containerID":"a","ifname":"eth0"}`),
			0o600); err != nil {
			t.Fatal(err)
		}
		old := time.Now().Add(-2 * time.Minute)
		if err := os.Chtimes(remaining, old, old); err != nil {
			t.Fatal(err)
		}
		if list, err := recordtest.List(s); len(list) != 1 || err != nil {
			t.Errorf("List: %+v, error %v, want one record", list, err)
		}
		if err := clean(); err != nil {
			t.Error(err)
		}
		if _, err := os.Stat(remaining); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("the file was not removed: %v", err)
		}
	}
	if _, err := s.Get(key("b", "eth0")); err != nil {
		t.Error(err)
	}
}

// TestPruneKeepsTheFilesOfARunningADD checks that Prune does not remove the temporary file of an
// ADD to another network, which the ADD renames afterwards.
func TestPruneKeepsTheFilesOfARunningADD(t *testing.T) {
	dir := t.TempDir()
	s := record.In(dir)
	put(t, s, sample(key("b", "eth0")))
	temporary := filepath.Join(dir, "attachments", ".a:net1.json.123")
	if err := os.WriteFile(temporary, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if removed, err := s.Prune("e2e", nil); len(removed) != 1 || err != nil {
		t.Errorf("Prune: %v, error %v, want the only record", removed, err)
	}
	if _, err := os.Stat(temporary); err != nil {
		t.Errorf("the temporary file: %v", err)
	}
}

// TestNonFilesAreSkipped checks that directory entries that are not regular files are kept and
// ignored.
func TestNonFilesAreSkipped(t *testing.T) {
	dir := t.TempDir()
	s := record.In(dir)
	put(t, s, sample(key("b", "eth0")))
	subdir, link := filepath.Join(dir, "attachments", "a:eth0.json"),
		filepath.Join(dir, "attachments", "c:eth0.json")
	if err := errors.Join(os.Mkdir(subdir, 0o700), os.Symlink("/dev/null", link)); err != nil {
		t.Fatal(err)
	}
	if all, err := recordtest.List(s); err != nil || len(all) != 1 {
		t.Errorf("List: %v, error %v, want one record", all, err)
	}
	pruned, err := s.Prune("e2e", nil)
	if err != nil || len(pruned) != 1 || pruned[0] != key("b", "eth0") {
		t.Errorf("Prune: %v, error %v, want the only record", pruned, err)
	}
	for _, name := range []string{subdir, link} {
		if _, err := os.Lstat(name); err != nil {
			t.Error(err)
		}
	}
}

func TestReadersFindCompleteRecordsOrNone(t *testing.T) {
	s := record.In(t.TempDir())
	k := key("a", "eth0")
	var group sync.WaitGroup
	for range 2 {
		group.Go(func() {
			for i := range 200 {
				if i%10 == 9 {
					if err := s.Remove(k); err != nil {
						t.Error(err)
					}
				} else if err := s.Put(sample(k)); err != nil && !errors.Is(err, fs.ErrNotExist) {
					t.Error(err) // fs.ErrNotExist: Remove has removed the incomplete file
				}
			}
		})
	}
	group.Go(func() {
		for range 400 {
			if _, err := s.Get(k); err != nil && !errors.Is(err, fs.ErrNotExist) {
				t.Error(err)
			}
			if _, err := recordtest.List(s); err != nil {
				t.Error(err)
			}
		}
	})
	group.Wait()
}

// TestFailedPutLeavesNoFile checks that the error names the attachment, and that no file remains.
func TestFailedPutLeavesNoFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	err := record.In(file).Put(sample(key("a", "eth0")))
	if err == nil || !strings.Contains(err.Error(), "store the record of attachment a/eth0") {
		t.Errorf("error %v, want the attachment in it", err)
	}
	long := key(strings.Repeat("a", 300), "eth0")
	if err := record.In(t.TempDir()).Put(sample(long)); err == nil {
		t.Error("a record was stored although its name is too long for a file")
	}
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "attachments", "a:eth0.json"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := record.In(dir).Put(sample(key("a", "eth0"))); err == nil {
		t.Error("a record was stored although its file is a directory")
	}
	if files, err := os.ReadDir(filepath.Join(dir, "attachments")); err != nil || len(files) != 1 {
		t.Errorf("files %v, error %v; want only the directory", files, err)
	}
}

// FuzzKey stores records with arbitrary names of attachments: Put creates one file in the
// directory, or returns an error and creates no file.
func FuzzKey(f *testing.F) {
	for _, id := range []string{
		"a", "..", "../x", "/etc/passwd", "a/b", "a:b", "a\x00", "", strings.Repeat("a", 300), "ä",
	} {
		f.Add(id, "eth0")
		f.Add("a", id)
	}
	top := f.TempDir()
	dir := filepath.Join(top, "run")
	s := record.In(dir)
	f.Fuzz(func(t *testing.T, id, ifname string) {
		k := key(id, ifname)
		err := s.Put(record.Record{Key: k})
		files, readErr := os.ReadDir(filepath.Join(dir, "attachments"))
		if readErr != nil && !errors.Is(readErr, fs.ErrNotExist) {
			t.Fatal(readErr)
		}
		if want := fmt.Sprintf("%s:%s.json", id, ifname); err == nil && (len(files) != 1 ||
			files[0].Name() != want) {
			t.Errorf("files %v, want %q", files, want)
		} else if err != nil && len(files) > 0 {
			t.Errorf("Put returns the error %v, but there are files %v", err, files)
		}
		if err := s.Remove(k); err != nil && k.Validate() == nil {
			t.Errorf("Remove: %v", err)
		}
		if others, err := os.ReadDir(top); err != nil || len(others) > 1 {
			t.Errorf("files %v, error %v, want only the run directory", others, err)
		}
	})
}

// FuzzGet reads arbitrary files: the result is a record with valid parameters, or the file is
// reported as unusable.
func FuzzGet(f *testing.F) {
	f.Add([]byte(`{"containerID":"a","ifname":"eth0","redirect":{"Mode":"REDIRECT","ProxyUIDs":[{"First":2,"Last":1}]},"time":"x"}`))
	f.Add([]byte(`[1e400]`))
	dir := f.TempDir()
	s := record.In(dir)
	put(f, s, sample(key("a", "eth0")))
	file := filepath.Join(dir, "attachments", "a:eth0.json")
	good, err := os.ReadFile(file)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Fuzz(func(t *testing.T, data []byte) {
		if err := os.WriteFile(file, data, 0o600); err != nil {
			t.Fatal(err)
		}
		r, err := s.Get(key("a", "eth0"))
		if err != nil && !record.IsUnusable(err) {
			t.Errorf("the error of an invalid file is not IsUnusable: %v", err)
		}
		if err == nil && r.Redirect != nil {
			if _, err := rules.Compile(*r.Redirect); err != nil {
				t.Errorf("a record with invalid parameters was read: %v", err)
			}
		}
	})
}
