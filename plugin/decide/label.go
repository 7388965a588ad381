package decide

import (
	"fmt"
	"strings"
)

// The maximum lengths in bytes of the parts of a label (k8s.io/apimachinery/pkg/util/validation).
const (
	maxLabelPrefix = 253
	maxLabelName   = 63 // also of a value
)

// validateLabelKey returns an error unless a label of Kubernetes can have the key.
func validateLabelKey(key string) error {
	prefix, name, hasPrefix := strings.Cut(key, "/")
	if !hasPrefix {
		name = prefix
	}
	if hasPrefix && !isSubdomain(prefix) || name == "" || !isLabelValue(name) {
		return fmt.Errorf("key: %s is not allowed: want the key of a label, such as app or"+
			" example.com/app", quote(key))
	}
	return nil
}

// validateLabelValue returns an error unless a label of Kubernetes can have the value.
func validateLabelValue(value string) error {
	if !isLabelValue(value) {
		return fmt.Errorf("value: %s is not allowed: want at most 63 letters, digits, -, _ and .,"+
			" with a letter or digit at both ends", quote(value))
	}
	return nil
}

// isLabelValue reports whether the text is allowed as the value of a label. A value that is not
// empty is also allowed as the name in a label's key.
func isLabelValue(text string) bool {
	isOuter := func(c byte) bool { return isLowerAlphanumeric(c) || 'A' <= c && c <= 'Z' }
	return len(text) <= maxLabelName && (text == "" || consistsOf(text, isOuter, "-_."))
}

// isSubdomain reports whether the text is a DNS subdomain of RFC 1123 in lower case.
func isSubdomain(text string) bool {
	if len(text) > maxLabelPrefix {
		return false
	}
	for label := range strings.SplitSeq(text, ".") {
		if !consistsOf(label, isLowerAlphanumeric, "-") {
			return false
		}
	}
	return true
}

// consistsOf reports whether the text consists only of bytes that isOuter accepts or inner
// contains, and begins and ends with bytes that isOuter accepts. It returns false for an empty
// text.
func consistsOf(text string, isOuter func(byte) bool, inner string) bool {
	for i := range len(text) {
		isEnd := i == 0 || i == len(text)-1
		if !isOuter(text[i]) && (isEnd || strings.IndexByte(inner, text[i]) < 0) {
			return false
		}
	}
	return text != ""
}

func isLowerAlphanumeric(c byte) bool { return 'a' <= c && c <= 'z' || '0' <= c && c <= '9' }
