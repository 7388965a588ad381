package save

import (
	"encoding/hex"
	"math"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/sluice-mesh/sluice/nft/xt"
	"github.com/sluice-mesh/sluice/rules"
)

// This file parses further matches that the model does not represent. Package xt returns the same
// text for the same match in the kernel. The text of a match with options that this file does not
// support, or with values that the kernel rejects, consists of the words of the rule.

// onlyNegates reports whether every negated option has one of the names.
func (r *moduleReader) onlyNegates(names ...string) bool {
	return !slices.ContainsFunc(r.options, func(o option) bool {
		return o.not && !slices.Contains(names, o.name)
	})
}

// isNot reports whether the option was given and is negated.
func (r *moduleReader) isNot(name string) bool {
	o := r.option(name)
	return o != nil && o.not
}

// indexOption returns the index of the option's value in a list, or false if the list lacks the
// value.
func (r *moduleReader) indexOption(name string, list []string) (i int, ok bool) {
	i = slices.Index(list, r.optionValue(name, ""))
	return max(i, 0), i >= 0
}

// tcpmssText returns the text of the match tcpmss.
func (r *moduleReader) tcpmssText() (text string, ok bool) {
	first, last, ok := numberRange(r.optionValue("--mss", ""), 16)
	return xt.TCPMSSMatchText(r.isNegated(), uint16(first), uint16(last)), ok
}

// connBytesText returns the text of the match connbytes. A negation exchanges the bounds.
func (r *moduleReader) connBytesText() (text string, ok bool) {
	firstText, lastText, _ := strings.Cut(r.optionValue("--connbytes", ""), ":")
	first, ok := number(firstText, 64)
	last, lastValid := number(lastText, 64)
	if lastText == "" { // a single number is the lower bound
		last, lastValid = ^uint64(0), true
	}
	mode, modeValid := r.indexOption("--connbytes-mode", xt.ConnBytesModes[:])
	direction, directionValid := r.indexOption("--connbytes-dir", xt.ConnBytesDirections[:])
	ok = ok && lastValid && modeValid && directionValid && first <= last &&
		r.onlyNegates("--connbytes")
	c := xt.ConnBytes{From: first, To: last, Mode: uint8(mode), Direction: uint8(direction)}
	if r.isNot("--connbytes") {
		c.From, c.To = last, first
	}
	return c.String(), ok
}

// connLimitText returns the text of the match connlimit.
func (r *moduleReader) connLimitText() (text string, ok bool) {
	c, name := xt.ConnLimit{Above: true}, "--connlimit-above"
	if r.option(name) == nil {
		c.Above, name = false, "--connlimit-upto"
	}
	n, ok := r.numberOption(name, 32)
	c.Limit, c.Above = uint32(n), c.Above != r.isNot(name)
	c.Bits = map[rules.Family]int{rules.IPv4: 32, rules.IPv6: 128}[r.family]
	if mask := r.option("--connlimit-mask"); mask != nil {
		bits, valid := number(mask.values[0].text, 8)
		ok, c.Bits = ok && valid && int(bits) <= c.Bits, int(bits)
	}
	c.Destination = r.option("--connlimit-daddr") != nil
	areBothGiven := func(a, b string) bool { return r.option(a) != nil && r.option(b) != nil }
	return c.String(), ok && r.onlyNegates(name) &&
		!areBothGiven("--connlimit-above", "--connlimit-upto") &&
		!areBothGiven("--connlimit-saddr", "--connlimit-daddr")
}

// macText returns the text of the match mac.
func (r *moduleReader) macText() (text string, ok bool) {
	address, err := net.ParseMAC(r.optionValue("--mac-source", ""))
	return xt.MACMatchText(r.isNegated(), address), err == nil && len(address) == 6
}

// helperText returns the text of the match helper.
func (r *moduleReader) helperText() (text string, ok bool) {
	name := r.optionValue("--helper", "")
	return xt.HelperMatchText(r.isNegated(), name), len(r.options) == 1 && len(name) < 30
}

// packetTypeText returns the text of the match pkttype.
func (r *moduleReader) packetTypeText() (text string, ok bool) {
	i, ok := r.indexOption("--pkt-type", xt.PacketTypes[:])
	return xt.PacketTypeText(r.isNegated(), i), ok
}

// quotaText returns the text of the match quota.
func (r *moduleReader) quotaText() (text string, ok bool) {
	n, ok := r.numberOption("--quota", 64)
	return xt.QuotaText(r.isNegated(), n), ok
}

// recent parses the options of the match recent. It returns false if an option is invalid.
func (r *moduleReader) recent() (m xt.Recent, ok bool) {
	m = xt.Recent{Name: r.optionValue("--name", "DEFAULT")}
	allOnes := map[rules.Family]string{
		rules.IPv4: "255.255.255.255", rules.IPv6: "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff",
	}[r.family]
	var err error
	m.Mask, err = netip.ParseAddr(r.optionValue("--mask", allOnes))
	seconds, secondsValid := number(r.optionValue("--seconds", "0"), 32)
	hits, hitsValid := number(r.optionValue("--hitcount", "0"), 32)
	ok = err == nil && rules.FamilyOf(m.Mask) == r.family && secondsValid && hitsValid
	m.Seconds, m.HitCount = uint32(seconds), uint32(hits)
	commands := 0
	for _, o := range r.options {
		m.Flags |= xt.RecentFlag(o.name)
		switch o.name {
		case "--set", "--rcheck", "--update", "--remove":
			commands++
			m.Not = o.not
		default:
			ok = ok && !o.not
		}
	}
	m.Destination = r.option("--rdest") != nil
	return m, ok && commands == 1 && len(m.Name) < 200 &&
		(r.option("--rsource") == nil || !m.Destination)
}

// stringText returns the text of the match string.
func (r *moduleReader) stringText() (string, bool) {
	m := xt.StringMatch{
		Algorithm:  r.optionValue("--algo", ""),
		IgnoreCase: r.option("--icase") != nil,
	}
	from, fromValid := number(r.optionValue("--from", "0"), 16)
	to, toValid := number(r.optionValue("--to", "65535"), 16)
	m.From, m.To = uint16(from), uint16(to)
	text, hexText := r.option("--string"), r.option("--hex-string")
	ok := false
	switch {
	case text != nil && hexText == nil:
		m.Pattern, m.Not, ok = []byte(text.values[0].text), text.not, true
	case hexText != nil && text == nil:
		m.Pattern, ok = hexPattern(hexText.values[0].text)
		m.Not = hexText.not
	}
	return m.String(), ok && fromValid && toValid && r.onlyNegates("--string", "--hex-string") &&
		len(m.Pattern) > 0 && len(m.Pattern) <= xt.MaxPattern && m.Algorithm != "" &&
		len(m.Algorithm) <= xt.MaxAlgorithm
}

// hexPattern parses a pattern in which the bytes between two | are hexadecimal (parse_hex_string in
// extensions/libxt_string.c). It returns false for a pattern with escaped characters.
func hexPattern(text string) (pattern []byte, ok bool) {
	if strings.Contains(text, `\`) {
		return nil, false
	}
	parts := strings.Split(text, "|")
	for i, part := range parts {
		if i%2 == 0 {
			pattern = append(pattern, part...)
			continue
		}
		for field := range strings.FieldsSeq(part) {
			data, err := hex.DecodeString(field)
			if err != nil {
				return nil, false
			}
			pattern = append(pattern, data...)
		}
	}
	return pattern, len(parts)%2 == 1
}

// hashlimitText returns the text of the match hashlimit. Rules with the same name share their
// counters.
func (r *moduleReader) hashlimitText() (text string, ok bool) {
	name := r.optionValue("--hashlimit-name", "")
	r.state = xt.StateOfHashLimit(name)
	h := xt.HashLimit{Name: name}
	limit := r.option("--hashlimit-upto")
	if above := r.option("--hashlimit-above"); above != nil {
		limit, h.Above = above, limit == nil
	}
	ok = limit != nil && h.Above == (r.option("--hashlimit-above") != nil) && r.onlyNegates() &&
		r.option("--hashlimit") == nil && r.option("--hashlimit-rate-match") == nil &&
		r.option("--hashlimit-rate-interval") == nil
	var unit uint64 // in seconds
	if ok {
		h.Average, unit, ok = hashLimitRate(limit.values[0].text)
	}
	numberOr := func(name string, defaultValue, highest uint64) uint64 {
		n := defaultValue
		if o := r.option("--hashlimit-" + name); o != nil {
			var valid bool
			n, valid = number(o.values[0].text, 64)
			ok = ok && valid
		}
		ok = ok && n <= highest
		return n
	}
	bits := r.addressBits()
	h.Burst = numberOr("burst", 5, math.MaxUint32)
	h.Size = uint32(numberOr("htable-size", 0, math.MaxUint32))
	h.Max = uint32(numberOr("htable-max", 0, math.MaxUint32))
	h.Interval = uint32(numberOr("htable-gcinterval", 1000, math.MaxUint32))
	h.Expire = uint32(numberOr("htable-expire", 1000*unit, math.MaxUint32))
	h.SourceBits = uint8(numberOr("srcmask", bits, bits))
	h.DestinationBits = uint8(numberOr("dstmask", bits, bits))
	if modes := r.option("--hashlimit-mode"); modes != nil {
		var valid bool
		h.Mode, valid = nameBits(modes.values[0].text, xt.HashLimitModes[:])
		ok = ok && valid
	}
	return h.String(), ok
}

// addressBits returns the number of bits of an address of the family.
func (r *moduleReader) addressBits() uint64 {
	if r.family == rules.IPv4 {
		return 32
	}
	return 128
}

// hashLimitRate parses a rate such as "5/sec", and returns the time between two packets in
// microseconds, and the unit of the rate in seconds (parse_rate in extensions/libxt_hashlimit.c).
func hashLimitRate(text string) (average, unit uint64, ok bool) {
	const microseconds = 1000000
	rate, name, _ := strings.Cut(text, "/")
	n, isNumber := number(rate, 31)
	for _, u := range [...]struct {
		name    string
		seconds uint64
	}{{"second", 1}, {"minute", 60}, {"hour", 60 * 60}, {"day", 24 * 60 * 60}} {
		if name != "" && strings.HasPrefix(u.name, name) && isNumber && n > 0 {
			return microseconds * u.seconds / n, u.seconds, n/u.seconds <= microseconds
		}
	}
	return 0, 0, false
}

// u32Text returns the text of the match u32.
func (r *moduleReader) u32Text() (text string, ok bool) {
	program, ok := u32Program(r.optionValue("--u32", ""))
	return xt.U32Text(r.isNegated(), program), ok
}

// u32Program converts a program of u32 to the format of iptables-save: tests such as
// "START&MASK>>SHIFT=FIRST:LAST,VALUE", separated by "&&", with hexadecimal numbers.
func u32Program(text string) (string, bool) {
	var tests []string
	for test := range strings.SplitSeq(strings.ReplaceAll(text, " ", ""), "&&") {
		location, values, _ := strings.Cut(test, "=")
		start, ok := u32Numbers(location, "&", "<<", ">>", "@")
		compared, valid := u32Numbers(values, ",", ":")
		if !ok || !valid {
			return "", false
		}
		tests = append(tests, start+"="+compared)
	}
	return strings.Join(tests, "&&"), true
}

// u32Numbers converts the numbers in a text to hexadecimal. It accepts only the given separators
// between the numbers. A range of one value becomes the value.
func u32Numbers(text string, separators ...string) (string, bool) {
	var converted strings.Builder
	for last, afterColon := "", false; ; {
		end := strings.IndexFunc(text, func(c rune) bool { return strings.ContainsRune("&<>@,:", c) })
		if end < 0 {
			end = len(text)
		}
		n, ok := number(text[:end], 32)
		if !ok {
			return "", false
		}
		value := "0x" + strconv.FormatUint(n, 16)
		if afterColon && value == last {
			value = ""
		} else if afterColon {
			value = ":" + value
		}
		converted.WriteString(value)
		if text = text[end:]; text == "" {
			return converted.String(), true
		}
		i := slices.IndexFunc(separators, func(s string) bool { return strings.HasPrefix(text, s) })
		if i < 0 || afterColon && separators[i] == ":" {
			return "", false
		}
		text = text[len(separators[i]):]
		if last, afterColon = value, separators[i] == ":"; !afterColon {
			converted.WriteString(separators[i])
		}
	}
}
