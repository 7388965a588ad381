package repair_test

import (
	"encoding/json"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/sluice-mesh/sluice/compat"
	"github.com/sluice-mesh/sluice/install/repair"
	"github.com/sluice-mesh/sluice/rules"
)

var equate = cmpopts.EquateComparable(netip.Addr{}, netip.Prefix{})

func entry(uid string) repair.Entry {
	r := rules.DefaultRedirect()
	r.InboundPorts.All, r.IPv6 = true, true
	return repair.Entry{
		UID: uid, Namespace: "shop", Name: "web", Redirect: r, Backend: compat.BackendNFT,
		Time: noon,
	}
}

// TestEntriesAreKept checks that a stored entry is returned until it is removed, and that only the
// owner can read its file.
func TestEntriesAreKept(t *testing.T) {
	dir := t.TempDir()
	store := repair.StoreIn(dir)
	if list, err := store.List(); len(list) > 0 || err != nil {
		t.Errorf("before the first entry: %v, error %v, want neither", list, err)
	}
	for _, uid := range []string{"a", "b", "a"} {
		if err := store.Put(entry(uid)); err != nil {
			t.Fatal(err)
		}
	}
	list, err := store.List()
	if diff := cmp.Diff(map[string]repair.Entry{"a": entry("a"), "b": entry("b")}, list,
		equate); diff != "" || err != nil {
		t.Errorf("error %v; entries (-want +got):\n%s", err, diff)
	}
	if info, err := os.Stat(filepath.Join(dir, "repaired", "a.json")); err != nil ||
		info.Mode() != 0o600 {
		t.Errorf("the file of the entry: %v, error %v; want the mode 0600", info, err)
	}
	for range 2 {
		if err := store.Remove("a"); err != nil {
			t.Error(err)
		}
	}
	if list, err := store.List(); len(list) != 1 || err != nil {
		t.Errorf("after Remove: %v, error %v, want one entry", list, err)
	}
}

// TestUIDsThatAreNotFileNamesAreRejected checks that Put rejects a UID that is not a file name, and
// that Remove ignores it.
func TestUIDsThatAreNotFileNamesAreRejected(t *testing.T) {
	store := repair.StoreIn(t.TempDir())
	for _, uid := range []string{"", "../a", "a/b", ".a", strings.Repeat("x", 201)} {
		if err := store.Put(entry(uid)); err == nil {
			t.Errorf("Put of an entry with the UID %q: no error, want one", uid)
		}
		if err := store.Remove(uid); err != nil {
			t.Errorf("Remove(%q): error %v, want none", uid, err)
		}
	}
}

// TestDamagedEntriesAreNamed checks that invalid files are named, and do not hide the other
// entries.
func TestDamagedEntriesAreNamed(t *testing.T) {
	valid, err := json.Marshal(entry("a"))
	if err != nil {
		t.Fatal(err)
	}
	replaced := func(before, after string) string {
		if !strings.Contains(string(valid), before) {
			t.Fatalf("the entry %s does not contain %s", valid, before)
		}
		return strings.Replace(string(valid), before, after, 1)
	}
	for name, text := range map[string]string{
		"an entry of a newer version": replaced(`{`, `{"version":2,`),
		"an entry of a newer version with a field of another type": replaced(`{`,
			`{"version":2,"redirect":[],`),
		"an entry with an unknown backend": replaced(`"engine":"nft"`, `"engine":"x"`),
		"an entry without a backend":       replaced(`"engine":"nft",`, ``),
		"an empty file":                    "", "a file that is not JSON": "{", "an entry of another pod": `{"uid":"b"}`,
		"an entry with invalid parameters": `{"uid":"a","redirect":{"Mode":"X"}}`,
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			store := repair.StoreIn(dir)
			if err := store.Put(entry("c")); err != nil {
				t.Fatal(err)
			}
			for _, file := range []string{"a.json", ".d.json", "e"} {
				if err := os.WriteFile(filepath.Join(dir, "repaired", file), []byte(text),
					0o600); err != nil {
					t.Fatal(err)
				}
			}
			list, err := store.List()
			if len(list) != 1 || err == nil || !strings.Contains(err.Error(), "a.json") {
				t.Errorf("entries %v, error %v; want one entry, and an error that names a.json", list, err)
			}
		})
	}
}

// TestEntriesWithoutVersionAreValid checks that an entry of an earlier agent, which wrote no
// version, is valid, and that this agent writes the version.
func TestEntriesWithoutVersionAreValid(t *testing.T) {
	dir := t.TempDir()
	store := repair.StoreIn(dir)
	if err := store.Put(entry("a")); err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(dir, "repaired", "a.json")
	text, err := os.ReadFile(name)
	if err != nil || !strings.HasPrefix(string(text), `{"version":1,`) {
		t.Fatalf("file %s, error %v; want version 1", text, err)
	}
	earlier, err := json.Marshal(entry("a"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, earlier, 0o600); err != nil {
		t.Fatal(err)
	}
	list, err := store.List()
	if diff := cmp.Diff(map[string]repair.Entry{"a": entry("a")}, list, equate); diff != "" ||
		err != nil {
		t.Errorf("error %v; entries (-want +got):\n%s", err, diff)
	}
}

// FuzzList checks that List returns an entry with valid parameters or an error for any file.
func FuzzList(f *testing.F) {
	dir := f.TempDir()
	store := repair.StoreIn(dir)
	if err := store.Put(entry("a")); err != nil {
		f.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(dir, "repaired", "a.json"))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(text)
	f.Add([]byte(`{"uid":"a"}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		if err := os.WriteFile(filepath.Join(dir, "repaired", "a.json"), text, 0o600); err != nil {
			t.Fatal(err)
		}
		list, err := store.List()
		if e, ok := list["a"]; ok == (err != nil) || ok && (e.Redirect.Validate() != nil || e.Backend == "") {
			t.Errorf("entries %+v, error %v, want either a valid entry or an error", list, err)
		}
	})
}
