package decide

import (
	"slices"
	"strings"
	"unicode/utf8"
)

// arguments are what a command line of istio-iptables states, by the long names of its flags.
type arguments struct {
	values map[string]string
	// unknown are flags that istio-iptables does not have, without their values.
	unknown []string
	// bare is the last flag, if it wants a value and there is none.
	bare string
}

// A flag is one of istio-iptables.
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
	parameters := table()
	for i := range parameters {
		if matches(parameters[i].flag) {
			return parameters[i].flag, true
		}
	}
	if i := slices.IndexFunc(otherFlags, matches); i >= 0 {
		return otherFlags[i], true
	}
	return flag{}, false
}

// parseArguments reads a command line as istio-iptables does (github.com/spf13/pflag): the last of
// several equal flags counts, and words that are neither flags nor their values are passed over. So
// is the value of an unknown flag.
func parseArguments(args []string) arguments {
	a := arguments{values: map[string]string{}}
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
func (a *arguments) long(word string, rest []string) []string {
	name, value, given := strings.Cut(word, "=")
	f, known := findFlag(func(f flag) bool { return f.long == name && name != "" })
	if !known {
		a.unknown = append(a.unknown, "--"+name)
		return rest
	}
	return a.set(f, value, given, rest)
}

// shorts reads the letters that follow one dash: any number of truth values, and then perhaps a
// flag with its value.
func (a *arguments) shorts(letters string, rest []string) []string {
	for letters != "" {
		_, size := utf8.DecodeRuneInString(letters)
		letter, after := letters[:size], letters[size:]
		f, known := findFlag(func(f flag) bool { return f.short == letter })
		if !known {
			a.unknown = append(a.unknown, "-"+letter)
			return rest
		}
		if value, given := strings.CutPrefix(after, "="); given || !f.truth {
			return a.set(f, value, after != "", rest)
		}
		// The only letter without value is that of a flag that has no effect here.
		letters = after
	}
	return rest
}

func (a *arguments) set(f flag, value string, given bool, rest []string) []string {
	switch {
	case given:
	case f.truth:
		value = "true"
	case len(rest) == 0:
		a.bare = "--" + f.long
		return nil
	default:
		value, rest = rest[0], rest[1:]
	}
	a.values[f.long] = value
	return rest
}
