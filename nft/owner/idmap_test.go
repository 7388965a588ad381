package owner

import (
	"strings"
	"testing"
)

func TestIDMapTranslatesMappedIDs(t *testing.T) {
	m, err := parseIDMap(
		strings.NewReader("         0     100000       1000\n      2000       5000          1\n"))
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range []struct {
		inside  uint32
		outside int
		mapped  bool
	}{
		{0, 100000, true},
		{999, 100999, true},
		{1000, 0, false},
		{2000, 5000, true},
		{2001, 0, false},
	} {
		if got, ok := m.Outside(row.inside); got != row.outside || ok != row.mapped {
			t.Errorf("%d inside is %d outside, %t; want %d, %t", row.inside, got, ok, row.outside,
				row.mapped)
		}
		if got := m.Inside(row.outside); row.mapped && got != row.inside {
			t.Errorf("%d outside is %d inside, want %d", row.outside, got, row.inside)
		}
	}
	if got := m.Inside(0); got != overflowID {
		t.Errorf("an unmapped id is %d inside, want %d", got, overflowID)
	}
	var same IDMap
	if got, ok := same.Outside(7); got != 7 || !ok || same.Inside(7) != 7 {
		t.Errorf("without a map, 7 is %d outside, %t, and %d inside; want 7, true and 7", got, ok,
			same.Inside(7))
	}
	if _, err := parseIDMap(strings.NewReader("0 x 1\n")); err == nil {
		t.Error("no error for an invalid line")
	}
}
