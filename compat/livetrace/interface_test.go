package livetrace

import (
	"errors"
	"maps"
	"testing"

	"github.com/vishvananda/netlink"
)

// A change of the interfaces interrupts their listing. If each attempt is interrupted, the
// incomplete list is used.
func TestInterruptedListOfInterfacesIsRepeated(t *testing.T) {
	link := func(index int, name string) netlink.Link {
		return &netlink.Dummy{LinkAttrs: netlink.LinkAttrs{Index: index, Name: name}}
	}
	errRefused := errors.New("refused")
	for _, row := range []struct {
		name          string
		interruptions int
		err           error // of the attempt after the interruptions
		want          map[uint32]string
	}{
		{"no change", 0, nil, map[uint32]string{1: "lo", 2: "eth0"}},
		{"two changes", 2, nil, map[uint32]string{1: "lo", 2: "eth0"}},
		{"continuous changes", 1000, nil, map[uint32]string{1: "lo"}},
		{"an error", 1, errRefused, nil},
	} {
		t.Run(row.name, func(t *testing.T) {
			calls := 0
			got, err := interfaceNames(func() ([]netlink.Link, error) {
				if calls++; calls <= row.interruptions {
					return []netlink.Link{link(1, "lo")}, netlink.ErrDumpInterrupted
				}
				return []netlink.Link{link(1, "lo"), link(2, "eth0")}, row.err
			})
			if !maps.Equal(got, row.want) || !errors.Is(err, row.err) {
				t.Errorf("interfaces %v, error %v; want %v, %v", got, err, row.want, row.err)
			}
		})
	}
}
