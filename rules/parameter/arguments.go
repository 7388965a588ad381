package parameter

import (
	"slices"
	"strings"
	"unicode/utf8"
)

// Arguments are the flags on a command line of istio-iptables.
type Arguments struct {
	// Values are the values of the flags, by long name.
	Values map[string]string
	// Unknown are flags that istio-iptables does not have, without their values.
	Unknown []string
	// MissingValue is the name of the last flag if its value is missing, otherwise empty.
	MissingValue string
}

// A flag is a command-line flag of istio-iptables.
type flag struct {
	long, short string
	isBool      bool // needs no value
}

// otherFlags are the flags of istio-iptables that have no effect on the rules.
var otherFlags = []flag{
	{"dry-run", "n", true},
	{"skip-rule-apply", "", true},
	{"run-validation", "", true},
	{"cni-mode", "", true},
	{"reconcile", "", true},
	{"cleanup-only", "", true},
	{"force-apply", "", true},
	{"native-nftables", "", true},
	{"iptables-probe-port", "", false},
	{"probe-timeout", "", false},
	{"network-namespace", "", false},
	{"force-iptables-binary", "", false},
	{"log_as_json", "", true},
	{"log_output_level", "", false},
	{"log_target", "", false},
	{"log_stacktrace_level", "", false},
	{"log_caller", "", false},
}

// findFlag returns the first flag of istio-iptables that matches, and reports whether there is one.
func findFlag(matches func(flag) bool) (flag, bool) {
	parameters := All()
	for i := range parameters {
		p := &parameters[i]
		if f := (flag{p.Flag, p.Short, p.Kind == Bool}); matches(f) {
			return f, true
		}
	}
	if i := slices.IndexFunc(otherFlags, matches); i >= 0 {
		return otherFlags[i], true
	}
	return flag{}, false
}

// ParseArguments parses a command line as istio-iptables does (github.com/spf13/pflag): if a flag
// is given several times, the last value counts. Words that are neither flags nor values are
// ignored, and so is the value of an unknown flag.
func ParseArguments(args []string) Arguments {
	a := Arguments{Values: map[string]string{}}
	for len(args) > 0 && args[0] != "--" {
		word := args[0]
		args = args[1:]
		switch {
		case strings.HasPrefix(word, "--"):
			args = a.parseLong(word[2:], args)
		case len(word) > 1 && word[0] == '-':
			args = a.parseShort(word[1:], args)
		}
	}
	return a
}

// parseLong parses a long flag, without its dashes, and returns the remaining arguments.
func (a *Arguments) parseLong(word string, rest []string) []string {
	name, value, isSet := strings.Cut(word, "=")
	f, known := findFlag(func(f flag) bool { return f.long == name && name != "" })
	if !known {
		a.Unknown = append(a.Unknown, "--"+name)
		return rest
	}
	return a.set(f, value, isSet, rest)
}

// parseShort parses the letters that follow one dash, and returns the remaining arguments. The
// letters are any number of flags without a value, and then at most one flag with a value.
func (a *Arguments) parseShort(letters string, rest []string) []string {
	for letters != "" {
		_, size := utf8.DecodeRuneInString(letters)
		letter, after := letters[:size], letters[size:]
		f, known := findFlag(func(f flag) bool { return f.short == letter })
		if !known {
			a.Unknown = append(a.Unknown, "-"+letter)
			return rest
		}
		if value, isSet := strings.CutPrefix(after, "="); isSet || !f.isBool {
			return a.set(f, value, after != "", rest)
		}
		// The value is not stored: the only short flag without a value is -n (--dry-run), which has
		// no effect on the rules.
		letters = after
	}
	return rest
}

// set stores the value of a flag, and returns the remaining arguments. isSet reports whether the
// word of the flag contains the value. Otherwise the value of a Boolean is true, and the value of
// another flag is the next argument.
func (a *Arguments) set(f flag, value string, isSet bool, rest []string) []string {
	switch {
	case isSet: // value is complete
	case f.isBool:
		value = "true"
	case len(rest) == 0:
		a.MissingValue = "--" + f.long
		return nil
	default:
		value, rest = rest[0], rest[1:]
	}
	a.Values[f.long] = value
	return rest
}
