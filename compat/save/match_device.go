package save

import (
	"math"
	"slices"
	"strings"

	"github.com/sluice-mesh/sluice/nft/xt"
	"github.com/sluice-mesh/sluice/rules"
)

// matchPhysicalDevice parses the match physdev.
func (r *moduleReader) matchPhysicalDevice() []rules.Match {
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
	r.setText(p.Set != 0 && isValid("--physdev-in", p.In) && isValid("--physdev-out", p.Out),
		p.String())
	return nil
}

// matchFragment parses the match frag.
func (r *moduleReader) matchFragment() []rules.Match {
	f := xt.Fragment{Last: math.MaxUint32}
	ok := r.onlyNegates("--fragid", "--fraglen")
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
	r.setText(ok, f.String())
	return nil
}

// longHeaderNames contains the other names of headers, in the order of [xt.HeaderNames].
var longHeaderNames = []string{
	"protocol", "ipv6-nonxt", "esp", "ah", "ipv6-frag", "ipv6-route", "ipv6-opts", "hop-by-hop",
}

// matchHeaders parses the match ipv6header.
func (r *moduleReader) matchHeaders() []rules.Match {
	var headers uint8
	ok := r.onlyNegates("--header")
	for name := range strings.SplitSeq(r.optionValue("--header", ""), ",") {
		i := max(slices.Index(xt.HeaderNames[:], name), slices.Index(longHeaderNames, name))
		ok = ok && i >= 0
		headers |= 1 << max(i, 0)
	}
	r.setText(ok, xt.HeadersText(r.isNot("--header"), headers, r.option("--soft") != nil))
	return nil
}
