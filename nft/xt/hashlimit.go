package xt

import (
	"fmt"
	"strings"
)

// A HashLimit is the match hashlimit (struct xt_hashlimit_mtinfo3) with a limit in packets.
type HashLimit struct {
	Name  string // of the hash table
	Above bool   // the rate must be above the limit; otherwise at most the limit
	// Average is the time between two packets in microseconds, and Burst a number of packets.
	Average, Burst uint64
	// Mode contains the bits of HashLimitModes.
	Mode uint32
	// Size is the number of buckets and Max the maximum number of entries of the hash table. 0
	// means that the kernel determines the number. Interval and Expire are times in milliseconds.
	Size, Max, Interval, Expire uint32
	RateInterval                uint32 // in seconds
	SourceBits, DestinationBits uint8  // lengths of prefixes
}

// HashLimitModes are the values of --hashlimit-mode in the order of their bits
// (XT_HASHLIMIT_HASH_DIP and others).
var HashLimitModes = [...]string{"dstip", "dstport", "srcip", "srcport"}

// Bits of struct hashlimit_cfg3.mode: the addresses and ports, and the inversion. Other bits, such
// as the one for limits in bytes, are not supported.
const (
	hashLimitModes  = 1<<len(HashLimitModes) - 1
	hashLimitInvert = 1 << len(HashLimitModes)
)

// String returns the text, with the parameters that are not 0.
func (h HashLimit) String() string {
	compares := "upto"
	if h.Above {
		compares = "above"
	}
	modes := namesOfBits(h.Mode, HashLimitModes[:])
	var b strings.Builder
	fmt.Fprintf(&b, "-m hashlimit --hashlimit-name %s --hashlimit-%s 1/%dus --hashlimit-burst %d",
		h.Name, compares, h.Average, h.Burst)
	if modes != nil {
		fmt.Fprintf(&b, " --hashlimit-mode %s", strings.Join(modes, ","))
	}
	for _, n := range [...]struct {
		name  string
		value uint32
	}{
		{"htable-size", h.Size},
		{"htable-max", h.Max},
		{"htable-gcinterval", h.Interval},
		{"htable-expire", h.Expire},
		{"rate-interval", h.RateInterval},
		{"srcmask", uint32(h.SourceBits)},
		{"dstmask", uint32(h.DestinationBits)},
	} {
		if n.value != 0 {
			fmt.Fprintf(&b, " --hashlimit-%s %d", n.name, n.value)
		}
	}
	return b.String()
}

// hashLimitText decodes struct xt_hashlimit_mtinfo3. It returns false for a limit in bytes.
func hashLimitText(data []byte) (string, bool) {
	const nameSize, configOffset, size = 255, 256, 304
	if len(data) < size {
		return "", false
	}
	c := data[configOffset:]
	mode := native.Uint32(c[16:])
	return HashLimit{
		Name: textBeforeZero(data[:nameSize]), Above: mode&hashLimitInvert != 0,
		Average: native.Uint64(c), Burst: native.Uint64(c[8:]), Mode: mode & hashLimitModes,
		Size: native.Uint32(c[20:]), Max: native.Uint32(c[24:]), Interval: native.Uint32(c[28:]),
		Expire: native.Uint32(c[32:]), RateInterval: native.Uint32(c[36:]), SourceBits: c[40],
		DestinationBits: c[41],
	}.String(), mode&^(hashLimitModes|hashLimitInvert) == 0
}
