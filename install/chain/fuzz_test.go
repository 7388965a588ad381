package chain_test

import (
	"encoding/json"
	"slices"
	"testing"

	"github.com/containernetworking/cni/libcni"

	"github.com/sluice-mesh/sluice/install/chain"
)

// FuzzInsertRemove checks any valid list: after insertion it is valid for libcni with the same
// other plugins, and after removal it has its original bytes.
func FuzzInsertRemove(f *testing.F) {
	for _, text := range lists {
		f.Add([]byte(text), []byte(element))
	}
	f.Add([]byte(`{"name":"n","plugins":[{"type":"sluice-cni"},{"type":"a"}]}`),
		[]byte(`{"type":"sluice-cni"}`))
	f.Add([]byte("{\"name\":\"n\",\"plugins\":[\n{\n}]}"), []byte(" {\n\"Type\":\"x\"} "))
	f.Fuzz(func(t *testing.T, data, element []byte) {
		list, err := chain.Parse(data)
		if libcniList, libcniErr := libcni.NetworkConfFromBytes(data); (err == nil) != (libcniErr == nil && len(libcniList.Plugins) > 0) {
			t.Fatalf("Parse: error %v, libcni: error %v; want both or neither, "+
				"except for a list without plugins", err, libcniErr)
		}
		if err != nil {
			return
		}
		original := slices.Clone(data)
		ours := chain.TypeOf(element)
		others := slices.DeleteFunc(list.Types(), func(plugin string) bool {
			return plugin == ours
		})
		with, err := list.Insert(json.RawMessage(element))
		if err != nil {
			if ours != "" && len(others) > 0 {
				t.Fatalf("error %v for inserting %s into %s", err, element, data)
			}
			return
		}
		after, err := chain.Parse(with)
		if err != nil {
			t.Fatalf("%v after inserting %s into %s:\n%s", err, element, data, with)
		}
		inserted := after.Types()[len(after.Plugins)-1]
		want := append(slices.DeleteFunc(list.Types(), func(p string) bool {
			return p == inserted
		}), inserted)
		if !slices.Equal(after.Types(), want) {
			t.Fatalf("after inserting %s, the types are %v, want %v", element, after.Types(), want)
		}
		for i, p := range slices.DeleteFunc(slices.Clone(list.Plugins), func(p chain.Plugin) bool {
			return p.Type == inserted
		}) {
			if string(after.Plugins[i].Raw) != string(p.Raw) {
				t.Fatalf("the plugin %s became %s", p.Raw, after.Plugins[i].Raw)
			}
		}
		if !list.Has(inserted) && string(after.Remove(inserted)) != string(original) {
			t.Fatalf("after inserting and removing %s:\n%q\nwant\n%q", inserted, after.Remove(inserted), original)
		}
		if string(data) != string(original) {
			t.Fatal("the original was changed")
		}
	})
}

// FuzzDiscover checks that the chosen configuration is one of the files, that libcni accepts its
// list, and that it has a delegation if and only if its first plugin is Multus.
func FuzzDiscover(f *testing.F) {
	f.Add("10-a.conf", []byte(`{"name":"n","type":"a"}`), "20-b.conflist",
		[]byte(lists["one line"]), "")
	f.Add("10-a.json", []byte(`{"name":1}`), "20-b.conflist", []byte(`{}`), "20-b.conf")
	f.Add("00-m.conf", []byte(`{"name":"m","type":"multus","delegates":[{"type":"a"}]}`),
		"20-b.conflist", []byte(lists["one line"]), "")
	f.Add("00-m.conf", []byte(`{"name":"m","type":"multus-shim","clusterNetwork":"/x/20-b.conf"}`),
		"20-b.conflist", []byte(`{}`), "")
	f.Fuzz(func(t *testing.T, first string, data []byte, second string, other []byte, named string) {
		choice, _, err := chain.Discover([]chain.File{
			{Name: first, Data: data}, {Name: second, Data: other},
		}, named)
		if err != nil {
			return
		}
		if choice.Name != first && choice.Name != second || len(choice.List.Plugins) == 0 {
			t.Fatalf("a choice that is neither of the files, or has no plugins: %+v", choice)
		}
		if _, err := libcni.NetworkConfFromBytes(choice.List.Bytes()); err != nil {
			t.Fatalf("libcni rejects %s: %v", choice.List.Bytes(), err)
		}
		delegation := choice.Delegates(choice, "/x", "sluice-cni")
		if chain.IsMultus(choice.List.Plugins[0].Type) == (delegation == chain.NoDelegation) {
			t.Fatalf("delegation %q of %s; want a delegation if and only if the first plugin is Multus",
				delegation, choice.List.Bytes())
		}
	})
}

// FuzzStandalone checks that a stand-alone configuration is valid, and contains all fields of the
// element.
func FuzzStandalone(f *testing.F) {
	f.Add([]byte(element), "0.3.1", "istio-cni")
	f.Add([]byte(` {"type":"a","NAME":"b"}`), "", "")
	f.Fuzz(func(t *testing.T, element []byte, version, network string) {
		conf, err := chain.Standalone(json.RawMessage(element), version, network)
		if err != nil {
			return
		}
		var before, after map[string]json.RawMessage
		if err := json.Unmarshal(element, &before); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(conf, &after); err != nil {
			t.Fatalf("%v in the stand-alone configuration %s", err, conf)
		}
		for key, value := range before {
			if !chain.Equal(value, after[key]) {
				t.Fatalf("%s: %s became %s", key, value, after[key])
			}
		}
	})
}

// FuzzMentions checks that Mentions returns true for every plugin that a runtime would call because
// of a configuration.
func FuzzMentions(f *testing.F) {
	for _, text := range lists {
		f.Add([]byte(text))
	}
	f.Add([]byte(`{"name":"n","type":"a","type":"b","Type":"c"}`))
	f.Add([]byte(`{"name":"n","plugins":[{"type":"a"}],"plugins":[{"type":"b","delegates":[[[{"type":""}]]]}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, name := range []string{"a.conf", "a.conflist"} {
			choice, err := chain.Read(chain.File{Name: name, Data: data})
			if err != nil {
				continue
			}
			for _, plugin := range choice.List.Types() {
				if !chain.Mentions(data, plugin) {
					t.Errorf("%s calls %q, but Mentions returns false: %s", name, plugin, data)
				}
			}
		}
	})
}
