package owner

import (
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/rules"
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
		if got, ok := m.outside(row.inside); got != row.outside || ok != row.mapped {
			t.Errorf("%d inside is %d outside (mapped: %t), want %d (%t)", row.inside, got, ok,
				row.outside, row.mapped)
		}
		if got := m.inside(row.outside); row.mapped && got != row.inside {
			t.Errorf("%d outside is %d inside, want %d", row.outside, got, row.inside)
		}
	}
	if got := m.inside(0); got != overflowID {
		t.Errorf("an unmapped id is %d inside, want %d", got, overflowID)
	}
	var same idMap
	if got, ok := same.outside(7); got != 7 || !ok || same.inside(7) != 7 {
		t.Errorf("without a map, 7 is %d outside, %t, and %d inside; want 7, true and 7", got, ok,
			same.inside(7))
	}
	if _, err := parseIDMap(strings.NewReader("0 x 1\n")); err == nil {
		t.Error("parseIDMap accepted an invalid line, want an error")
	}
}

// TestMapsAreUnknownIfTheOwnerCannotBeRead covers a closed namespace. MapsOf translates each id to
// itself only if the kernel does not report owners.
func TestMapsAreUnknownIfTheOwnerCannotBeRead(t *testing.T) {
	ns, err := netns.Open("/proc/thread-self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	if err := ns.Close(); err != nil {
		t.Fatal(err)
	}
	maps := MapsOf(ns, "/proc")
	if !errors.Is(maps.Err(), os.ErrClosed) {
		t.Errorf("error %v, want %v", maps.Err(), os.ErrClosed)
	}
}

func TestMapsTranslateOwners(t *testing.T) {
	unknown := Maps{users: idMap{}, groups: idMap{}, err: errNoProcess}
	mapped := Maps{users: idMap{{0, 100000, 1000}}, groups: idMap{{0, 200000, 1000}}}
	for _, row := range []struct {
		name    string
		maps    Maps
		outside rules.Owner
		inside  rules.Owner
		unknown bool
		// outsideErr is the error of the translation of inside to outside.
		outsideErr string
	}{
		{
			name: "without maps", outside: rules.Owner{UID: 7, GID: 8},
			inside: rules.Owner{UID: 7, GID: 8},
		},
		{
			name: "mapped ids", maps: mapped, outside: rules.Owner{UID: 100007, GID: 200008},
			inside: rules.Owner{UID: 7, GID: 8},
		},
		{
			name: "a user that is not mapped", maps: mapped,
			outside:    rules.Owner{UID: 7, GID: 200008},
			inside:     rules.Owner{UID: overflowID, GID: 8},
			outsideErr: "uid 65534 gid 8: not mapped into the user namespace",
		},
		{
			name: "unknown maps", maps: unknown, outside: rules.Owner{UID: 7, GID: 8},
			inside: rules.Owner{UID: overflowID, GID: overflowID}, unknown: true,
			outsideErr: errNoProcess.Error(),
		},
	} {
		inside, err := row.maps.Inside(row.outside)
		if inside != row.inside || (err != nil) != row.unknown || !errors.Is(row.maps.Err(), err) {
			t.Errorf("%s: %v inside, error %v, want %v, with an error: %t", row.name, inside,
				err, row.inside, row.unknown)
		}
		uid, gid, err := row.maps.Outside(row.inside)
		if row.outsideErr != "" {
			if err == nil || err.Error() != row.outsideErr {
				t.Errorf("%s: Outside returns error %v, want %s", row.name, err, row.outsideErr)
			}
			continue
		}
		if got := (rules.Owner{UID: uint32(uid), GID: uint32(gid)}); got != row.outside || err != nil {
			t.Errorf("%s: %v outside, error %v, want %v", row.name, got, err, row.outside)
		}
	}
}
