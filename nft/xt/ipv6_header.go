package xt

import (
	"fmt"
	"strings"
)

// This file contains the texts of the IPv6 matches frag and ipv6header.

// A Fragment is the match frag of IPv6 (struct ip6t_frag). It compares the id of the fragment with
// the range from First to Last. The kernel ignores Length, the length of the fragment header in
// bytes.
type Fragment struct {
	First, Last, Length uint32
	NotIDs, NotLength   bool
	// Flags contains the bits of FragmentOptions.
	Flags uint8
}

// FragmentOptions are the options in the order of their bits (IP6T_FRAG_IDS and others).
var FragmentOptions = [...]string{
	"--fragid", "--fraglen", "--fragres", "--fragfirst", "--fragmore", "--fraglast",
}

// fragmentIDs is the bit of --fragid, and fragmentLength the bit of --fraglen.
const fragmentIDs, fragmentLength = 1 << 0, 1 << 1

// String returns the text, which always contains the range of ids.
func (f Fragment) String() string {
	text := fmt.Sprintf("-m frag %s--fragid %d:%d", negation(f.NotIDs), f.First, f.Last)
	if f.Flags&fragmentLength != 0 {
		text += fmt.Sprintf(" %s--fraglen %d", negation(f.NotLength), f.Length)
	}
	others := f.Flags &^ (fragmentIDs | fragmentLength)
	for _, option := range namesOfBits(uint32(others), FragmentOptions[:]) {
		text += " " + option
	}
	return text
}

// fragmentText decodes struct ip6t_frag.
func fragmentText(data []byte) (string, bool) {
	const known = 1<<len(FragmentOptions) - 1
	if len(data) < 14 {
		return "", false
	}
	flags, inverted := data[12], data[13]
	return Fragment{
		native.Uint32(data), native.Uint32(data[4:]), native.Uint32(data[8:]),
		inverted&fragmentIDs != 0, inverted&fragmentLength != 0, flags,
	}.String(), flags&^known == 0 && inverted&^(fragmentIDs|fragmentLength) == 0
}

// HeaderNames are the names of the headers that ipv6header can match, in the order of the bits from
// the lowest (MASK_PROTO and others).
var HeaderNames = [...]string{"prot", "none", "esp", "auth", "frag", "route", "dst", "hop"}

// HeadersText returns the text of the match ipv6header. headers contains the bits of HeaderNames.
func HeadersText(not bool, headers uint8, soft bool) string {
	names := strings.Join(namesOfBits(uint32(headers), HeaderNames[:]), ",")
	text := fmt.Sprintf("-m ipv6header %s--header %s", negation(not), names)
	if soft {
		text += " --soft"
	}
	return text
}

// headersText decodes struct ip6t_ipv6header_info: the headers, a mask that negates them, and the
// flag of --soft, with which other headers may be present too.
func headersText(data []byte) (string, bool) {
	if len(data) < 3 {
		return "", false
	}
	return HeadersText(data[1] != 0, data[0], data[2] != 0),
		data[1] == 0 || data[1] == 0xff
}
