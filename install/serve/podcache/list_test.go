package podcache

import (
	"strings"
	"testing"

	"github.com/sluice-mesh/sluice/plugin/source"
)

func TestDecodeList(t *testing.T) {
	for _, row := range []struct {
		name, text, err string
	}{
		{"items", `{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"7","continue":"c"},
			"items":[{"metadata":{"namespace":"shop","name":"web"}},{}]}`, ""},
		{"items before the other fields, and an unknown field", `{"items":[{"metadata":{"namespace":
			"shop","name":"web"}},{}],"x":[{}],"metadata":{"resourceVersion":"7","continue":"c"}}`, ""},
		{"an array", `[]`, "it is not a JSON object"},
		{"no JSON", `<html>`, "invalid character '<'"},
		{"nothing", ``, "EOF"},
		{"items that are an object", `{"items":{}}`, "its items are not an array"},
		{"an item that is a number", `{"items":[7]}`, "cannot unmarshal number"},
		{"a truncated list", `{"items":[{}`, "EOF"},
		{"a truncated object", `{"items":[{}]`, "EOF"},
		{
			"many items", `{"items":[` + strings.Repeat("{},", maxListed) + `{}]}`,
			"it has more than 50000 items",
		},
		{
			"a large item", `{"items":[{"spec":"` + strings.Repeat("x", source.MaxObject) + `"}]}`,
			"an object or a field is larger than 8 MiB",
		},
		{
			"a large name", `{"` + strings.Repeat("x", source.MaxObject) + `":0}`,
			"an object or a field is larger than 8 MiB",
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			l, err := decodeList(strings.NewReader(row.text))
			if row.err != "" {
				if err == nil || !strings.Contains(err.Error(), row.err) {
					t.Errorf("error %.100v, want %q", err, row.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if l.ResourceVersion != "7" || l.Continue != "c" || len(l.Items) != 2 ||
				l.Items[0].Name != "web" || l.Items[0].cached == nil {
				t.Errorf("list %+v, want version 7, two trimmed items", l)
			}
		})
	}
}

// TestManyLargeItems checks that the limit applies to each item.
func TestManyLargeItems(t *testing.T) {
	item := `{"spec":"` + strings.Repeat("x", source.MaxObject/2) + `"}`
	l, err := decodeList(strings.NewReader(`{"items":[` + item + "," + item + "," + item + `]}`))
	if err != nil || len(l.Items) != 3 {
		t.Errorf("list %v, error %v; want three items", l, err)
	}
}
