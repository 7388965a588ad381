package podcache

import (
	"encoding/json"
	"strings"
	"testing"
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
			"a large item", `{"items":[{"spec":"` + strings.Repeat("x", maxListedBytes) + `"}]}`,
			"an object or a field is larger than 16 MiB",
		},
		{
			"an item of exactly 16 MiB, after which no byte can be read",
			`{"items":[{"spec":"` + strings.Repeat("x", maxListedBytes-len(`{"spec":""}`)) + `"},{}]}`,
			"an object or a field is larger than 16 MiB",
		},
		{
			"a field of exactly 16 MiB, after which no byte can be read",
			`{"x":{"y":"` + strings.Repeat("x", maxListedBytes-len(`:{"y":""}`)) + `"},"items":[]}`,
			"an object or a field is larger than 16 MiB",
		},
		{
			"a large name", `{"` + strings.Repeat("x", maxListedBytes) + `":0}`,
			"an object or a field is larger than 16 MiB",
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			l, err := decodeList(strings.NewReader(row.text), 0)
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

func TestLimitAppliesToEachItem(t *testing.T) {
	item := `{"spec":"` + strings.Repeat("x", maxListedBytes/2) + `"}`
	l, err := decodeList(strings.NewReader(`{"items":[`+item+","+item+","+item+`]}`), 0)
	if err != nil || len(l.Items) != 3 {
		t.Errorf("list %v, error %v; want three items", l, err)
	}
}

// TestTheLargestObjectIsListed checks that a list may contain an object that etcd just accepts, and
// whose JSON is as long as possible.
func TestTheLargestObjectIsListed(t *testing.T) {
	item, err := json.Marshal(map[string]string{"spec": strings.Repeat("<", 3<<19)})
	if err != nil {
		t.Fatal(err)
	}
	l, err := decodeList(strings.NewReader(`{"items":[`+string(item)+`]}`), 0)
	if err != nil || len(l.Items) != 1 {
		t.Errorf("list %v, error %v; want one item", l, err)
	}
}
