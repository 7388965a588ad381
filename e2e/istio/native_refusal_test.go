package istio_test

import (
	"net/netip"
	"slices"
	"strings"
)

// A nativeRefusal is a kind of configuration that istio-nftables rejects, although istio-iptables
// accepts it.
type nativeRefusal struct {
	id, description string
	// messages contains parts of nft's error.
	messages []string
	// expected reports whether the configuration is of this kind.
	expected func(s testCase) bool
	// rewrite returns the value of an argument that has the same meaning for nft as the original
	// value for iptables. It is nil if there is no such value.
	rewrite func(name, value string) string
}

// nativeRefusals contains all known kinds, in the order in which nft reports their errors: errors
// of nft's parser are first.
var nativeRefusals = []nativeRefusal{
	{
		"port-range", "a port range is a-b for nft and a:b for iptables",
		[]string{"dport"},
		func(s testCase) bool {
			return s.hasArg(func(name, value string) bool {
				ignored := name == "--istio-local-exclude-ports" && !s.redirect.InboundPorts.All
				return strings.Contains(name, "ports") && strings.Contains(value, ":") && !ignored
			})
		},
		func(name, value string) string {
			if strings.Contains(name, "ports") {
				return strings.ReplaceAll(value, ":", "-")
			}
			return value
		},
	},
	{
		"interface-pattern", "an interface pattern is tap* for nft and tap+ for iptables",
		[]string{"unexpected +"},
		func(s testCase) bool {
			return s.hasArg(func(name, value string) bool {
				return strings.HasSuffix(name, "interfaces") && strings.Contains(value, "+")
			})
		},
		func(name, value string) string {
			if strings.HasSuffix(name, "interfaces") {
				return strings.ReplaceAll(value, "+", "*")
			}
			return value
		},
	},
	{
		"scoped-server", "nft has no syntax for an address with a zone (fe80::1%eth0)",
		[]string{"%eth0", "syntax error"},
		func(s testCase) bool {
			return s.redirect.DNS.Capture && !s.redirect.DNS.All && s.redirect.IPv6 &&
				strings.Contains(s.ResolvConf, "%")
		}, nil,
	},
	{
		"no-dns-chain",
		"with only IPv6 nameservers in an IPv4-only pod, the rules jump to a chain that is not created",
		[]string{"jump istio-output-dns", "No such file or directory"},
		func(s testCase) bool {
			return s.redirect.DNS.Capture && !s.redirect.DNS.All && !s.redirect.IPv6 &&
				!slices.ContainsFunc(s.redirect.DNS.Servers, netip.Addr.Is4)
		}, nil,
	},
}

// isIn reports whether the output contains the error.
func (r nativeRefusal) isIn(output string) bool {
	return !slices.ContainsFunc(r.messages, func(part string) bool {
		return !strings.Contains(output, part)
	})
}

// hasArg reports whether match returns true for some argument.
func (s testCase) hasArg(match func(name, value string) bool) bool {
	return slices.ContainsFunc(s.Args, func(arg string) bool {
		name, value, _ := strings.Cut(arg, "=")
		return match(name, value)
	})
}

// rewriteArgs applies rewrite to the values of all arguments.
func rewriteArgs(args []string, rewrite func(name, value string) string) []string {
	rewritten := slices.Clone(args)
	for i, arg := range rewritten {
		if name, value, ok := strings.Cut(arg, "="); ok {
			rewritten[i] = name + "=" + rewrite(name, value)
		}
	}
	return rewritten
}
