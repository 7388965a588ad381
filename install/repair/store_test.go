package repair_test

import (
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

// TestStore checks that a stored entry is returned until it is removed, and that only the owner can
// read its file.
func TestStore(t *testing.T) {
	dir := t.TempDir()
	l := repair.StoreIn(dir)
	if list, err := l.List(); len(list) > 0 || err != nil {
		t.Errorf("before the first entry: %v, %v", list, err)
	}
	for _, uid := range []string{"a", "b", "a"} {
		if err := l.Put(entry(uid)); err != nil {
			t.Fatal(err)
		}
	}
	list, err := l.List()
	if diff := cmp.Diff(map[string]repair.Entry{"a": entry("a"), "b": entry("b")}, list,
		equate); diff != "" || err != nil {
		t.Errorf("%s%v", diff, err)
	}
	if info, err := os.Stat(filepath.Join(dir, "repaired", "a.json")); err != nil ||
		info.Mode() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
	for range 2 {
		if err := l.Remove("a"); err != nil {
			t.Error(err)
		}
	}
	if list, err := l.List(); len(list) != 1 || err != nil {
		t.Errorf("after removal: %v, %v", list, err)
	}
}

// TestUIDsThatAreNotFileNames checks that a UID that is not a file name is rejected, and does not
// refer to another file.
func TestUIDsThatAreNotFileNames(t *testing.T) {
	l := repair.StoreIn(t.TempDir())
	for _, uid := range []string{"", "../a", "a/b", ".a", strings.Repeat("x", 201)} {
		if err := l.Put(entry(uid)); err == nil {
			t.Errorf("an entry with the UID %q is stored", uid)
		}
		if err := l.Remove(uid); err != nil {
			t.Errorf("%q: %v", uid, err)
		}
	}
}

// TestDamagedEntries checks that invalid files are named, and do not hide the other entries.
func TestDamagedEntries(t *testing.T) {
	for name, text := range map[string]string{
		"empty": "", "no JSON": "{", "another pod's": `{"uid":"b"}`,
		"with invalid parameters": `{"uid":"a","redirect":{"Mode":"X"}}`,
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			l := repair.StoreIn(dir)
			if err := l.Put(entry("c")); err != nil {
				t.Fatal(err)
			}
			for _, file := range []string{"a.json", ".d.json", "e"} {
				if err := os.WriteFile(filepath.Join(dir, "repaired", file), []byte(text),
					0o600); err != nil {
					t.Fatal(err)
				}
			}
			list, err := l.List()
			if len(list) != 1 || err == nil || !strings.Contains(err.Error(), "a.json") {
				t.Errorf("%v, %v", list, err)
			}
		})
	}
}

// FuzzList checks that any file is an entry with valid parameters or an error.
func FuzzList(f *testing.F) {
	dir := f.TempDir()
	l := repair.StoreIn(dir)
	if err := l.Put(entry("a")); err != nil {
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
		list, err := l.List()
		if e, ok := list["a"]; ok == (err != nil) || ok && e.Redirect.Validate() != nil {
			t.Errorf("%+v, %v", list, err)
		}
	})
}
