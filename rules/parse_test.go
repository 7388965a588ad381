package rules_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/sluice-mesh/sluice/rules"
)

// parsers maps the names of values to their parsers.
var parsers = map[string]func(string) (any, error){
	"mode":             func(text string) (any, error) { return rules.ParseMode(text) },
	"port":             func(text string) (any, error) { return rules.ParsePort(text) },
	"optional port":    func(text string) (any, error) { return rules.ParseOptionalPort(text) },
	"ports":            func(text string) (any, error) { return rules.ParsePorts(text) },
	"port selection":   func(text string) (any, error) { return rules.ParsePortSelection(text) },
	"prefixes":         func(text string) (any, error) { return rules.ParsePrefixes(text) },
	"prefix selection": func(text string) (any, error) { return rules.ParsePrefixSelection(text) },
	"loopback":         func(text string) (any, error) { return rules.ParseLoopbackCIDR(text) },
	"ids":              func(text string) (any, error) { return rules.ParseIDs(text, nil) },
	"names":            func(text string) (any, error) { return rules.ParseIDs(text, lookup) },
	"groups": func(text string) (any, error) {
		return rules.ParseGroupSelection(text, lookup)
	},
	"interfaces": func(text string) (any, error) { return rules.ParseInterfaces(text) },
	"mark":       func(text string) (any, error) { return rules.ParseMark(text) },
	"bool":       func(text string) (any, error) { return rules.ParseBool(text) },
	"server":     func(text string) (any, error) { return rules.ParseServer(text) },
}

// lookup resolves two names.
func lookup(name string) (uint32, error) {
	if id, ok := map[string]uint32{"daemon": 1, "istio-proxy": 1337}[name]; ok {
		return id, nil
	}
	return 0, errors.New("no such name")
}

func TestParsersAccept(t *testing.T) {
	for _, tc := range []struct{ name, parser, text, want string }{
		{"an empty mode is REDIRECT", "mode", "", "REDIRECT"},
		{"a mode by name", "mode", "TPROXY", "TPROXY"},

		{"the first port", "port", "1", "1"},
		{"the last port", "port", "65535", "65535"},
		{"no port", "optional port", "0", "0"},
		{"the last optional port", "optional port", "65535", "65535"},
		{"no ports", "ports", "", "[]"},
		{"a list of ports, in ascending order", "ports", "443,80", "[80 443]"},
		{"blanks after commas, as in Istio", "ports", "15090, 15021", "[15021 15090]"},
		{"blanks, tabs and newlines around elements", "ports", " 80\t,\n443 ", "[80 443]"},
		{"empty elements, as in Istio", "ports", ",80,,443,", "[80 443]"},
		{"only commas and blanks", "ports", " , ,", "[]"},
		{"a range in iptables syntax", "ports", "8000:9000", "[8000-9000]"},
		{"a range in nft syntax", "ports", "8000-9000", "[8000-9000]"},
		{"a range of one port", "ports", "80-80", "[80]"},
		{"all ports as a range", "ports", "0-65535", "[0-65535]"},
		{"a port twice", "ports", "80,80", "[80]"},
		{"a port within a range", "ports", "8000-9000,8080", "[8000-9000]"},
		{"overlapping ranges", "ports", "8500-9500,8000-9000", "[8000-9500]"},
		{"adjacent ranges are merged", "ports", "8001-9000,7000-8000", "[7000-9000]"},
		{"adjacent single ports are not merged", "ports", "81,80", "[80 81]"},
		{"port 0, as in Istio", "ports", "0", "[0]"},
		{"a port with leading zeros is decimal", "ports", "0080", "[80]"},
		{"all ports", "port selection", "*", "{true []}"},
		{"some ports", "port selection", "80", "{false [80]}"},
		{"no ports", "port selection", "", "{false []}"},

		{
			"prefixes of both families in the order given", "prefixes", "fd00::/8,10.0.0.0/8",
			"[fd00::/8 10.0.0.0/8]",
		},
		{"host bits remain, as in Istio", "prefixes", "10.1.2.3/8", "[10.1.2.3/8]"},
		{
			"blanks, which Istio rejects", "prefixes", "10.0.0.0/8, 11.0.0.0/8",
			"[10.0.0.0/8 11.0.0.0/8]",
		},
		{"every address of a family", "prefixes", "0.0.0.0/0,::/0", "[0.0.0.0/0 ::/0]"},
		{
			"a mapped prefix is unchanged", "prefixes", "::ffff:10.0.0.0/104",
			"[::ffff:10.0.0.0/104]",
		},
		{"all addresses", "prefix selection", "*", "{true []}"},
		{"some addresses", "prefix selection", "10.0.0.0/8", "{false [10.0.0.0/8]}"},
		{"the widest loopback prefix", "loopback", "127.0.0.1/8", "127.0.0.1/8"},
		{"the narrowest loopback prefix", "loopback", "127.0.0.2/32", "127.0.0.2/32"},

		{"ids in the given order", "ids", "1338, 1337", "[1338 1337]"},
		{"a range of ids", "ids", "2000-2999", "[2000-2999]"},
		{"the first and the last id", "ids", "0,4294967294", "[0 4294967294]"},
		{"names with a lookup function", "names", "daemon,202", "[1 202]"},
		{"a name with a hyphen is not a range", "names", "istio-proxy", "[1337]"},
		{"numbers are not looked up", "names", "5-7", "[5-7]"},
		{"all groups", "groups", "*", "{true []}"},
		{"no groups", "groups", "", "{false []}"},

		{"interfaces", "interfaces", "not-istio-nic, eth1", "[not-istio-nic eth1]"},
		{"a prefix of names in iptables syntax", "interfaces", "eth+", "[eth*]"},
		{"a prefix of names in nft syntax", "interfaces", "eth*", "[eth*]"},
		{"a name of 15 bytes", "interfaces", "abcdefghijklmno", "[abcdefghijklmno]"},
		{
			"a name with special characters", "interfaces", "eth0.100,veth@x,br_1",
			"[eth0.100 veth@x br_1]",
		},

		{"a decimal mark", "mark", "1337", "1337"},
		{"a hexadecimal mark, which Istio's routes reject", "mark", "0x539", "1337"},
		{"a hexadecimal mark in capitals", "mark", "0X53A", "1338"},
		{"the lowest mark", "mark", "0", "0"},
		{"the highest mark", "mark", "0xffffffff", "4294967295"},

		{"true", "bool", "true", "true"},
		{"1", "bool", "1", "true"},
		{"F", "bool", "F", "false"},

		{"an IPv4 server", "server", "10.96.0.10", "10.96.0.10"},
		{"an IPv6 server", "server", "fd00:10:96::a", "fd00:10:96::a"},
		{"a scoped server loses its zone, as with iptables", "server", "fe80::1%eth0", "fe80::1"},
		{"a mapped server is an IPv4 server", "server", "::ffff:10.96.0.10", "10.96.0.10"},
	} {
		got, err := parsers[tc.parser](tc.text)
		if err != nil || fmt.Sprint(got) != tc.want {
			t.Errorf("%s: %s %q: got %v (%v), want %s", tc.name, tc.parser, tc.text, got, err,
				tc.want)
		}
	}
}

func TestParsersReject(t *testing.T) {
	const (
		ports    = "a port (0-65535) nor an ascending range of ports"
		prefix   = "a prefix such as 10.0.0.0/8 or fd00::/8"
		loopback = "an IPv4 loopback prefix from /8 to /32"
		id       = "a numeric id (0-4294967294) nor an ascending range of ids"
		name     = "the name of an interface: 1 to 15 bytes"
		mark     = "a number from 0 to 4294967295"
		alone    = "want \"*\" alone, or a list without it"
	)
	for _, tc := range []struct{ name, parser, text, allowed string }{
		{
			"a mode in lower case, which means REDIRECT in Istio", "mode", "tproxy",
			"REDIRECT or TPROXY",
		},
		{"the mode of pods that are not captured", "mode", "NONE", "REDIRECT or TPROXY"},

		{"port 0", "port", "0", "a port (1-65535)"},
		{"an optional port that is too high", "optional port", "65536", "a port from 0 to 65535"},
		{"an optional port that is not a number", "optional port", "x", "a port from 0 to 65535"},
		{"a port that is too high", "port", "65536", "a port (1-65535)"},
		{"an empty port", "port", "", "a port (1-65535)"},
		{"a word", "ports", "80a", ports},
		{"the name of a service", "ports", "http", ports},
		{"a listed port that is too high", "ports", "70000", ports},
		{"a negative port", "ports", "-80", ports},
		{"a signed port", "ports", "+80", ports},
		{"a descending range", "ports", "9000-8000", ports},
		{"a range without its last port", "ports", "8000-", ports},
		{"a range of three ports", "ports", "1-2-3", ports},
		{"two different range separators", "ports", "1:2-3", ports},
		{"a hexadecimal port", "ports", "0x50", ports},
		{"two ports without a comma", "ports", "80 443", ports},
		{"a wildcard in a list without wildcards", "ports", "*", ports},
		{"a wildcard with ports", "port selection", "80,*", alone},

		{"an address without a length, as in Istio", "prefixes", "10.0.0.0", prefix},
		{"a length that is too long", "prefixes", "10.0.0.0/33", prefix},
		{"a wildcard in a list without wildcards", "prefixes", "*", prefix},
		{"a zone", "prefixes", "fe80::1%eth0/64", prefix},
		{"a mask", "prefixes", "10.0.0.0/255.0.0.0", prefix},
		{"a wildcard with prefixes", "prefix selection", "10.0.0.0/8,*", alone},
		{"not a loopback address", "loopback", "10.0.0.1/32", loopback},
		{"a prefix wider than loopback", "loopback", "127.0.0.0/7", loopback},
		{"IPv6", "loopback", "::1/128", loopback},
		{"a mapped loopback address", "loopback", "::ffff:127.0.0.1/128", loopback},
		{"an empty prefix", "loopback", "", loopback},

		{"a name without a lookup function", "ids", "istio-proxy", id},
		{"the id that means no id", "ids", "4294967295", id},
		{"a negative id", "ids", "-1", id},
		{"a descending range", "ids", "5-3", id},
		{"a range in the syntax of iptables ports", "ids", "5:7", id},
		{
			"an unknown name", "names", "nobody",
			"neither a numeric id (0-4294967294) nor a known name: no such name",
		},
		{
			"an unknown name", "groups", "nobody",
			"neither a numeric id (0-4294967294) nor a known name: no such name",
		},

		{"a name of 16 bytes", "interfaces", "abcdefghijklmnop", name},
		{"a slash", "interfaces", "a/b", name},
		{"a colon", "interfaces", "eth0:1", name},
		{"a blank within a name", "interfaces", "eth0 eth1", name},
		{"a quotation mark", "interfaces", `a"b`, name},
		{"a dot", "interfaces", ".", name},
		{"two dots", "interfaces", "..", name},
		{"every interface, which no backend can match by name", "interfaces", "*", name},
		{"every interface in iptables syntax", "interfaces", "+", name},
		{"two wildcards", "interfaces", "eth++", name},

		{"a mark that is too high", "mark", "4294967296", mark},
		{"a negative mark", "mark", "-1", mark},
		{"hexadecimal without 0x", "mark", "53a", mark},
		{"no digits", "mark", "0x", mark},
		{"a mask", "mark", "0x539/0xff", mark},
		{"an empty mark", "mark", "", mark},

		{"a word that is not a boolean", "bool", "banana", "true or false"},
		{"an empty text", "bool", "", "true or false"},

		{"a name", "server", "dns.example.com", "an IP address"},
		{"a port", "server", "10.96.0.10:53", "an IP address"},
	} {
		got, err := parsers[tc.parser](tc.text)
		if err == nil {
			t.Errorf("%s: %s %q: got %v, want an error", tc.name, tc.parser, tc.text, got)
			continue
		}
		element := tc.text
		if before, wildcard, both := strings.Cut(tc.text, ","); both && before != "" {
			element = wildcard
		}
		fault := fmt.Sprintf("%q is ", element)
		if tc.allowed == alone {
			fault = fmt.Sprintf("%q stands for all", element)
		}
		for _, part := range []string{fault, tc.allowed} {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("%s: %s %q: the error %q does not contain %q", tc.name, tc.parser, tc.text, err,
					part)
			}
		}
	}
}

func TestListErrorsNameEveryInvalidElement(t *testing.T) {
	for _, tc := range []struct{ parser, text string }{
		{"ports", "80, x, 443, 70000, 9-8"},
		{"prefixes", "10.0.0.0/8, x, fd00::/8, 10.0.0.0, ::/129"},
		{"ids", "1337, x, 5-7, 7-5, -1"},
		{"names", "daemon, x, 5-7, 7-5, nobody"},
		{"interfaces", "eth0, x/y, eth+, a:b, .."},
	} {
		_, err := parsers[tc.parser](tc.text)
		if err == nil {
			t.Errorf("%s %q: got no error, want one", tc.parser, tc.text)
			continue
		}
		for i, element := range strings.Split(tc.text, ", ") {
			invalid := i == 1 || i > 2 // the first and the third element of each list are valid
			if strings.Contains(err.Error(), fmt.Sprintf("%q", element)) != invalid {
				t.Errorf("%s %q: want the error to name %q: %t; got:\n%v", tc.parser, tc.text, element,
					invalid, err)
			}
		}
	}
}
