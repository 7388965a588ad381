package istio_test

import (
	"net/netip"
	"slices"
	"strings"
)

// A nativeRefusal is a configuration that istio-nftables rejects and istio-iptables accepts.
type nativeRefusal struct {
	id, sentence string
	// says contains parts of nft's error.
	says []string
	// expected reports whether the configuration is of this kind.
	expected func(s subject) bool
	// instead rewrites an argument so that nft interprets it as iptables interprets the original.
	// It is nil if that is impossible.
	instead func(name, value string) string
}

// nativeRefusals contains all known kinds. Errors of nft's parser come first.
var nativeRefusals = []nativeRefusal{
	{
		"port-range", "a range of ports is written a-b for nft and a:b for iptables",
		[]string{"dport"},
		func(s subject) bool {
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
		"interface-prefix", "the beginning of names is written tap* for nft and tap+ for iptables",
		[]string{"unexpected +"},
		func(s subject) bool {
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
		"scoped-server", "a nameserver with a zone (fe80::1%eth0) is not in nft's language",
		[]string{"%eth0", "syntax error"},
		func(s subject) bool {
			return s.redirect.DNS.Capture && !s.redirect.DNS.All && s.redirect.IPv6 &&
				strings.Contains(s.ResolvConf, "%")
		}, nil,
	},
	{
		"no-dns-chain",
		"with only IPv6 nameservers in a pod of IPv4 it jumps to a chain that it does not make",
		[]string{"jump istio-output-dns", "No such file or directory"},
		func(s subject) bool {
			return s.redirect.DNS.Capture && !s.redirect.DNS.All && !s.redirect.IPv6 &&
				!slices.ContainsFunc(s.redirect.DNS.Servers, netip.Addr.Is4)
		}, nil,
	},
}

// isIn reports whether the output contains the error.
func (r nativeRefusal) isIn(output string) bool {
	return !slices.ContainsFunc(r.says, func(part string) bool {
		return !strings.Contains(output, part)
	})
}

// hasArg reports whether like returns true for some argument.
func (s subject) hasArg(like func(name, value string) bool) bool {
	return slices.ContainsFunc(s.Args, func(arg string) bool {
		name, value, _ := strings.Cut(arg, "=")
		return like(name, value)
	})
}

// rewrite applies the function to the values of all arguments.
func rewrite(args []string, instead func(name, value string) string) []string {
	all := slices.Clone(args)
	for i, arg := range all {
		if name, value, ok := strings.Cut(arg, "="); ok {
			all[i] = name + "=" + instead(name, value)
		}
	}
	return all
}
