package chain_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/sluice-mesh/sluice/install/chain"
)

// space returns random white space that JSON allows.
func space(t *rapid.T) string {
	return rapid.StringOfN(rapid.SampledFrom([]rune(" \t\r\n")), 0, 4, -1).Draw(t, "space")
}

// object returns a JSON object with the members in random order, and with random white space.
func object(t *rapid.T, members ...string) string {
	var b strings.Builder
	b.WriteString("{" + space(t))
	for i, m := range rapid.Permutation(members).Draw(t, "order") {
		if i > 0 {
			b.WriteString(space(t) + "," + space(t))
		}
		b.WriteString(m)
	}
	return b.String() + space(t) + "}"
}

func member(t *rapid.T, key, value string) string {
	return `"` + key + `"` + space(t) + ":" + space(t) + value
}

func quoted(t *rapid.T, s string) string {
	text, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// plugin returns an element with fields that resemble the surrounding structure.
func plugin(t *rapid.T, name string) string {
	members := []string{member(t, "type", quoted(t, name))}
	for range rapid.IntRange(0, 3).Draw(t, "fields") {
		odd := rapid.SampledFrom([]string{
			`"plugins":[{"type":"x"}]`, `"a":"]}],{\"type\""`, `"b":{"plugins":[]}`, `"c":1.0e5`,
			`"d":[[],{}]`, `"é\u0022":null`,
		})
		members = append(members, odd.Draw(t, "field"))
	}
	return object(t, members...)
}

func network(t *rapid.T, types []string) string {
	var elements strings.Builder
	for i, name := range types {
		if i > 0 {
			elements.WriteString(space(t) + "," + space(t))
		}
		elements.WriteString(plugin(t, name))
	}
	return space(t) + object(t, member(t, "name", `"net"`), member(t, "cniVersion", `"1.0.0"`),
		`"x":{"plugins":[1]}`,
		member(t, "plugins", "["+space(t)+elements.String()+space(t)+"]")) + space(t)
}

func TestInsertAndRemoveRestoreAnyList(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		types := rapid.SliceOfN(rapid.SampledFrom([]string{"a", "b", "c d", "type"}), 1,
			4).Draw(t, "types")
		text := network(t, types)
		list, err := chain.Parse([]byte(text))
		if err != nil {
			t.Fatalf("%v in %s", err, text)
		}
		ours := plugin(t, "sluice-cni")
		with, err := list.Insert(json.RawMessage(ours))
		if err != nil {
			t.Fatal(err)
		}
		after, err := chain.Parse(with)
		if err != nil {
			t.Fatalf("%v after insertion: %s", err, with)
		}
		if !slices.Equal(after.Types(), append(types, "sluice-cni")) ||
			after.Inspect("sluice-cni", json.RawMessage(ours)) != chain.None {
			t.Fatalf("the plugin is not as desired after insertion: types %v in %s", after.Types(), with)
		}
		if got := string(after.Remove("sluice-cni")); got != text {
			t.Fatalf("after insertion and removal, %q became %q", text, got)
		}
	})
}

// TestAnyPluginCanBeRemoved checks that removing any types does not change the other plugins.
func TestAnyPluginCanBeRemoved(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		types := rapid.SliceOfN(rapid.SampledFrom([]string{"a", "b", "c"}), 1, 6).Draw(t, "types")
		text := network(t, append(types, "stays"))
		list, err := chain.Parse([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		removed := rapid.SampledFrom([][]string{
			{"a"}, {"b", "c"}, {"a", "b", "c"}, {"none"},
		}).Draw(t, "removed")
		rest, err := chain.Parse(list.Remove(removed...))
		if err != nil {
			t.Fatalf("%v: %s without %v", err, text, removed)
		}
		var want []string
		for _, p := range list.Plugins {
			if !slices.Contains(removed, p.Type) {
				want = append(want, string(p.Raw))
			}
		}
		var got []string
		for _, p := range rest.Plugins {
			got = append(got, string(p.Raw))
		}
		if !slices.Equal(want, got) {
			t.Fatalf("%q without %v has the plugins %q, want %q", text, removed, got, want)
		}
	})
}
