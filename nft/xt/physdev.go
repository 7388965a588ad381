package xt

import (
	"bytes"
	"fmt"
	"strings"
)

// A PhysicalDevice is the match physdev (struct xt_physdev_info).
type PhysicalDevice struct {
	// In and Out are names of ports of a bridge, or prefixes of names with a final "+".
	In, Out string
	// Set contains the bits of the conditions, and Not the bits of the negated conditions, in the
	// order of PhysicalDeviceOptions.
	Set, Not uint8
}

// PhysicalDeviceOptions are the options in the order of their bits (XT_PHYSDEV_OP_IN and others).
// The first two options have a value.
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
