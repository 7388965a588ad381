package debian

import (
	"cmp"
	"strings"
)

// CompareVersions orders versions as dpkg does (deb-version(7)). The result is negative if a is
// older than b, 0 if they are equal, and positive if a is newer.
func CompareVersions(a, b string) int {
	epochA, upstreamA, revisionA := parts(a)
	epochB, upstreamB, revisionB := parts(b)
	return cmp.Or(comparePart(epochA, epochB), comparePart(upstreamA, upstreamB),
		comparePart(revisionA, revisionB))
}

// parts splits a version, such as 1:2.3-4, into its parts.
func parts(version string) (epoch, upstream, revision string) {
	epoch, upstream, ok := strings.Cut(version, ":")
	if !ok {
		epoch, upstream = "0", version
	}
	if i := strings.LastIndexByte(upstream, '-'); i >= 0 {
		upstream, revision = upstream[:i], upstream[i+1:]
	}
	return epoch, upstream, revision
}

// comparePart compares alternating runs of non-digits and digits.
func comparePart(a, b string) int {
	for a != "" || b != "" {
		for (a != "" && !digit(a[0])) || (b != "" && !digit(b[0])) {
			if order := cmp.Compare(weight(a), weight(b)); order != 0 {
				return order
			}
			a, b = a[1:], b[1:]
		}
		var numberA, numberB string
		numberA, a = number(a)
		numberB, b = number(b)
		if order := cmp.Or(cmp.Compare(len(numberA), len(numberB)),
			strings.Compare(numberA, numberB)); order != 0 {
			return order
		}
	}
	return 0
}

func digit(c byte) bool { return '0' <= c && c <= '9' }

// weight returns the rank of the first character of a string: a tilde, then the end of the string
// and digits, then letters, then all other characters.
func weight(s string) int {
	switch {
	case s == "" || digit(s[0]):
		return 0
	case s[0] == '~':
		return -1
	case 'a' <= s[0]|0x20 && s[0]|0x20 <= 'z':
		return int(s[0])
	}
	return int(s[0]) + 256
}

// number returns the leading digits without leading zeros, and the rest of the string.
func number(s string) (digits, rest string) {
	i := 0
	for i < len(s) && digit(s[i]) {
		i++
	}
	return strings.TrimLeft(s[:i], "0"), s[i:]
}
