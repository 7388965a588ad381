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
	// Bare is the last flag, if it wants a value and has none.
	Bare string
}

// A flag is a flag of istio-iptables.
type flag struct {
	long, short string
	truth       bool // needs no value
}

// otherFlags are those flags of istio-iptables that do not shape the rules.
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

func findFlag(matches func(flag) bool) (flag, bool) {
	all := All()
	for i := range all {
		if f := (flag{all[i].Flag, all[i].Short, all[i].Kind == Bool}); matches(f) {
			return f, true
		}
	}
	if i := slices.IndexFunc(otherFlags, matches); i >= 0 {
		return otherFlags[i], true
	}
	return flag{}, false
}

// ParseArguments parses a command line as istio-iptables does (github.com/spf13/pflag): the last of
// several equal flags counts, and words that are neither flags nor values are ignored, as is the
// value of an unknown flag.
func ParseArguments(args []string) Arguments {
	a := Arguments{Values: map[string]string{}}
	for len(args) > 0 && args[0] != "--" {
		word := args[0]
		args = args[1:]
		switch {
		case strings.HasPrefix(word, "--"):
			args = a.long(word[2:], args)
		case len(word) > 1 && word[0] == '-':
			args = a.shorts(word[1:], args)
		}
	}
	return a
}

// long reads what follows two dashes, and returns the arguments that are left.
func (a *Arguments) long(word string, rest []string) []string {
	name, value, isSet := strings.Cut(word, "=")
	f, known := findFlag(func(f flag) bool { return f.long == name && name != "" })
	if !known {
		a.Unknown = append(a.Unknown, "--"+name)
		return rest
	}
	return a.set(f, value, isSet, rest)
}

// shorts reads the letters that follow one dash: any number of truth values, and then perhaps a
// flag with its value.
func (a *Arguments) shorts(letters string, rest []string) []string {
	for letters != "" {
		_, size := utf8.DecodeRuneInString(letters)
		letter, after := letters[:size], letters[size:]
		f, known := findFlag(func(f flag) bool { return f.short == letter })
		if !known {
			a.Unknown = append(a.Unknown, "-"+letter)
			return rest
		}
		if value, isSet := strings.CutPrefix(after, "="); isSet || !f.truth {
			return a.set(f, value, after != "", rest)
		}
		// The only letter without a value belongs to a flag that has no effect here.
		letters = after
	}
	return rest
}

func (a *Arguments) set(f flag, value string, isSet bool, rest []string) []string {
	switch {
	case isSet:
	case f.truth:
		value = "true"
	case len(rest) == 0:
		a.Bare = "--" + f.long
		return nil
	default:
		value, rest = rest[0], rest[1:]
	}
	a.Values[f.long] = value
	return rest
}
