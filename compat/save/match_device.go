package save

import (
	"math"
	"slices"
	"strings"

	"github.com/sluice-mesh/sluice/nft/xt"
)

// physicalDeviceText returns the text of the match physdev.
func (r *moduleReader) physicalDeviceText() (text string, ok bool) {
	p := xt.PhysicalDevice{
		In: r.optionValue("--physdev-in", ""), Out: r.optionValue("--physdev-out", ""),
	}
	for _, o := range r.options {
		bit := uint8(1) << slices.Index(xt.PhysicalDeviceOptions[:], o.name)
		p.Set |= bit
		if o.not {
			p.Not |= bit
		}
	}
	isValid := func(option, name string) bool {
		return r.option(option) == nil || name != "" && len(name) < 16
	}
	return p.String(),
		p.Set != 0 && isValid("--physdev-in", p.In) && isValid("--physdev-out", p.Out)
}

// fragmentText returns the text of the match frag.
func (r *moduleReader) fragmentText() (text string, ok bool) {
	f := xt.Fragment{Last: math.MaxUint32}
	ok = r.onlyNegates("--fragid", "--fraglen")
	for _, o := range r.options {
		valid := true
		switch o.name {
		case "--fragid":
			f.First, f.Last, valid = numberRange(o.values[0].text, 32)
			f.NotIDs = o.not
		case "--fraglen":
			var n uint64
			n, valid = number(o.values[0].text, 32)
			f.Length, f.NotLength = uint32(n), o.not
		}
		f.Flags |= 1 << slices.Index(xt.FragmentOptions[:], o.name)
		ok = ok && valid
	}
	return f.String(), ok
}

// longHeaderNames contains the other names of headers, in the order of [xt.HeaderNames].
var longHeaderNames = []string{
	"protocol", "ipv6-nonxt", "esp", "ah", "ipv6-frag", "ipv6-route", "ipv6-opts", "hop-by-hop",
}

// headersText returns the text of the match ipv6header.
func (r *moduleReader) headersText() (text string, ok bool) {
	var headers uint8
	ok = r.onlyNegates("--header")
	for name := range strings.SplitSeq(r.optionValue("--header", ""), ",") {
		i := max(slices.Index(xt.HeaderNames[:], name), slices.Index(longHeaderNames, name))
		ok = ok && i >= 0
		headers |= 1 << max(i, 0)
	}
	return xt.HeadersText(r.isNot("--header"), headers, r.option("--soft") != nil), ok
}
