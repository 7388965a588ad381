package xt

import (
	"bytes"
	"fmt"
	"strings"
)

// This file describes the matches physdev, socket, frag and ipv6header, like match_text.go.

// A PhysicalDevice is the match physdev (struct xt_physdev_info). In and Out are names of ports of
// a bridge; a prefix ends in +. Set and Not contain bits of PhysicalDeviceOptions.
type PhysicalDevice struct {
	In, Out  string
	Set, Not uint8
}

// PhysicalDeviceOptions are the options in the order of their bits (XT_PHYSDEV_OP_IN and others).
// The first two have a value.
var PhysicalDeviceOptions = [...]string{
	"--physdev-in", "--physdev-out", "--physdev-is-bridged", "--physdev-is-in", "--physdev-is-out",
}

// String returns the text of iptables-save.
func (p PhysicalDevice) String() string {
	var b strings.Builder
	b.WriteString("-m physdev")
	for i, option := range PhysicalDeviceOptions {
		if p.Set&(1<<i) == 0 {
			continue
		}
		fmt.Fprintf(&b, " %s%s", negation(p.Not&(1<<i) != 0), option)
		if i < 2 {
			fmt.Fprintf(&b, " %s", [...]string{p.In, p.Out}[i])
		}
	}
	return b.String()
}

// physicalDeviceText decodes struct xt_physdev_info: the names of both devices, each with a mask,
// the negated conditions and the conditions.
func physicalDeviceText(data []byte) (string, bool) {
	const nameSize, invertOffset, known = 16, 64, 1<<len(PhysicalDeviceOptions) - 1
	if len(data) < invertOffset+2 {
		return "", false
	}
	p := PhysicalDevice{Not: data[invertOffset], Set: data[invertOffset+1]}
	ok := p.Set&^known == 0 && p.Not&^p.Set == 0
	for i, to := range []*string{&p.In, &p.Out} {
		name, mask := data[2*i*nameSize:][:nameSize], data[(2*i+1)*nameSize:][:nameSize]
		length := nameSize - len(bytes.TrimLeft(mask, "\xff"))
		text, _, isComplete := bytes.Cut(name[:length], []byte{0})
		if *to = string(text); !isComplete {
			*to += "+"
		}
		ok = ok && len(bytes.Trim(mask[length:], "\x00")) == 0 && (!isComplete || len(text)+1 == length)
	}
	return p.String(), ok
}

// SocketText returns the text of a match socket with the flags of SocketOptions.
func SocketText(flags uint8) string {
	text := "-m socket"
	for i, option := range SocketOptions {
		if flags&(1<<i) != 0 {
			text += " " + option
		}
	}
	return text
}

// SocketOptions are the options of the match socket in the order of their bits
// (XT_SOCKET_TRANSPARENT and others).
var SocketOptions = [...]string{"--transparent", "--nowildcard", "--restore-skmark"}

// A Fragment is the match frag of IPv6 (struct ip6t_frag). IDs are always compared.
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

// String returns the text, with all ranges.
func (f Fragment) String() string {
	text := fmt.Sprintf("-m frag %s--fragid %d:%d", negation(f.NotIDs), f.First, f.Last)
	if f.Flags&fragmentLength != 0 {
		text += fmt.Sprintf(" %s--fraglen %d", negation(f.NotLength), f.Length)
	}
	for i, option := range FragmentOptions {
		if f.Flags&(1<<i)&^(fragmentIDs|fragmentLength) != 0 {
			text += " " + option
		}
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

// HeaderNames are the names of the match ipv6header, in the order of the bits from the lowest
// (MASK_PROTO and others).
var HeaderNames = [...]string{"prot", "none", "esp", "auth", "frag", "route", "dst", "hop"}

// HeadersText returns the text of the match ipv6header. headers contains the bits of HeaderNames.
func HeadersText(not bool, headers uint8, soft bool) string {
	var names []string
	for i, name := range HeaderNames {
		if headers&(1<<i) != 0 {
			names = append(names, name)
		}
	}
	text := fmt.Sprintf("-m ipv6header %s--header %s", negation(not), strings.Join(names, ","))
	if soft {
		text += " --soft"
	}
	return text
}

// headersText decodes struct ip6t_ipv6header_info: the headers, a mask that negates them, and
// whether other headers may be present too.
func headersText(data []byte) (string, bool) {
	if len(data) < 3 {
		return "", false
	}
	return HeadersText(data[1] != 0, data[0], data[2] != 0),
		data[1] == 0 || data[1] == 0xff
}
