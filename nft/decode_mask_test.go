package nft

import (
	"fmt"
	"math/bits"
	"slices"
	"testing"

	"github.com/sluice-mesh/sluice/rules"
)

// TestMaskedPorts compares the ranges of masked ports with each port.
func TestMaskedPorts(t *testing.T) {
	for _, tc := range []struct {
		value, mask uint16
		ranges      int // 0 if the result must not be ok
	}{
		{80, 0xffff, 1},
		{0x100, 0xff00, 1},
		{0x8000, 0x8000, 1},
		{0, 0xfff0, 1},
		{80, 0xfff3, 4},
		{0xf001, 0xf00f, 0},  // 256 ranges
		{0xf001, 0xf03f, 64}, // as many as allowed
		{0x8002, 0x8fde, 16}, // two groups of bits, and the lowest bit
		{0x0001, 0x0001, 0},  // 32768 ranges
		{0x0001, 0xff00, 0},  // no port
		{0, 0, 0},
	} {
		name := fmt.Sprintf("& %#x == %#x", tc.mask, tc.value)
		ports, ok := maskedPorts([]byte{byte(tc.value >> 8), byte(tc.value)},
			[]byte{byte(tc.mask >> 8), byte(tc.mask)})
		if ok != (tc.ranges > 0) || len(ports) != tc.ranges {
			t.Errorf("%s: %d ranges, ok %t; want %d ranges", name, len(ports), ok, tc.ranges)
		}
		for port := range 1 << 16 {
			in := slices.ContainsFunc(ports, func(r rules.PortRange) bool {
				return int(r.First) <= port && port <= int(r.Last)
			})
			if want := uint16(port)&tc.mask == tc.value; ok && in != want {
				t.Fatalf("%s: contains port %d: %t, want %t", name, port, in, want)
			}
		}
	}
}

// TestMasksOfPortsAreBounded covers a set of ports that is looked up with many masks, each of which
// stands for maxJoinedPorts ranges of ports for each element.
func TestMasksOfPortsAreBounded(t *testing.T) {
	const elements = 256
	set := &decodedSet{keyLength: 2}
	for i := range elements {
		set.elements = append(set.elements, element{key: []byte{0, byte(i)}})
	}
	budget := maxExpansion
	ranges, decoded := 0, 0
	for xor := range elements {
		for mask := range 1 << 8 {
			if bits.OnesCount(uint(mask)) != 2 {
				continue
			}
			op := loadedField(fieldDestinationPort, 2, "th dport")
			op.hasPorts, op.mask, op.xor = true, []byte{byte(mask), 0xff}, []byte{0, byte(xor)}
			d := ruleDecoder{budget: &budget}
			matches, ok := d.setMatches([]operand{op}, false, values{set: set})
			if !ok {
				continue
			}
			decoded++
			for _, alternative := range matches[0].(rules.MatchTuple).Alternatives {
				for _, m := range alternative {
					ranges += len(m.(rules.MatchPort).Ports)
				}
			}
		}
	}
	// Four ranges count as one condition.
	if decoded == 0 || ranges > 4*maxExpansion {
		t.Errorf("%d lookups were decoded as %d ranges of ports, want some, and at most %d ranges",
			decoded, ranges, 4*maxExpansion)
	}
}
