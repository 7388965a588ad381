package debian

import (
	"cmp"
	"strings"
)

// CompareVersions orders versions as dpkg does (deb-version(7)). The result is negative if a is
// older than b, 0 if they are equal, and positive if a is newer.
func CompareVersions(a, b string) int {
	epochA, upstreamA, revisionA := splitVersion(a)
	epochB, upstreamB, revisionB := splitVersion(b)
	return cmp.Or(comparePart(epochA, epochB), comparePart(upstreamA, upstreamB),
		comparePart(revisionA, revisionB))
}

// splitVersion splits a version, such as 1:2.3-4, into its parts.
func splitVersion(version string) (epoch, upstream, revision string) {
	epoch, upstream, hasEpoch := strings.Cut(version, ":")
	if !hasEpoch {
		epoch, upstream = "0", version
	}
	if i := strings.LastIndexByte(upstream, '-'); i >= 0 {
		upstream, revision = upstream[:i], upstream[i+1:]
	}
	return epoch, upstream, revision
}

// comparePart compares a part of two versions. It alternately compares the leading non-digits
// character by character, and the leading digits as numbers.
func comparePart(a, b string) int {
	for a != "" || b != "" {
		for (a != "" && !isDigit(a[0])) || (b != "" && !isDigit(b[0])) {
			if order := cmp.Compare(rank(a), rank(b)); order != 0 {
				return order
			}
			a, b = a[1:], b[1:]
		}
		var numberA, numberB string
		numberA, a = cutNumber(a)
		numberB, b = cutNumber(b)
		if order := cmp.Or(cmp.Compare(len(numberA), len(numberB)),
			strings.Compare(numberA, numberB)); order != 0 {
			return order
		}
	}
	return 0
}

// isDigit reports whether a character is a decimal digit.
func isDigit(c byte) bool { return '0' <= c && c <= '9' }

// isLetter reports whether a character is an ASCII letter.
func isLetter(c byte) bool { return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' }

// rank returns the place of the first character of a string in dpkg's order: a tilde, then the end
// of the string and digits, then letters, then all other characters.
func rank(s string) int {
	const afterLetters = 256 // more than the rank of every letter
	switch {
	case s == "" || isDigit(s[0]):
		return 0
	case s[0] == '~':
		return -1
	case isLetter(s[0]):
		return int(s[0])
	}
	return afterLetters + int(s[0])
}

// cutNumber returns the leading digits without leading zeros, and the rest of the string.
func cutNumber(s string) (digits, rest string) {
	i := 0
	for i < len(s) && isDigit(s[i]) {
		i++
	}
	return strings.TrimLeft(s[:i], "0"), s[i:]
}
