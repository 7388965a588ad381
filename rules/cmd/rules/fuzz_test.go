package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-mesh/sluice/rules"
)

// FuzzInputs reads lines as arguments, and lines that begin with $ as variables. Accepted inputs
// must compile.
func FuzzInputs(f *testing.F) {
	for _, lines := range []string{
		"-p\n15001\n-z\n15006\n-u\n1337\n-m\nREDIRECT\n-i\n*\n-x\n\n-b\n*\n-d\n15090,15021,15020\n--log_output_level=default:info",
		"-m\nTPROXY\n-t\n0x539\n-r\n133\n--dual-stack\n--drop-invalid\n--redirect-dns\n--nameserver\nfe80::1%eth0\n-c\neth+\n-k\nvif0",
		"--pod-ip\nfd00::5\n--without\nnat-first\n--strict-istio\n--keep-established\n-o\njson\n-nb80",
		"$ISTIO_OUTBOUND_OWNER_GROUPS=1,2-3\n$PROXY_UID=\n$DUAL_STACK=banana\n$CAPTURE_ALL_DNS=1\n$ISTIO_META_DNS_CAPTURE=true",
		"-i\n::ffff:10.0.0.0/104,127.0.0.0/8,0.0.0.0/0,::/0\n-q\n0-65535\n-o\n53,5432\n--pid\n1\n--netns\n/x\nsurplus",
	} {
		f.Add(lines)
	}
	f.Fuzz(func(t *testing.T, lines string) {
		s, _ := testSystem()
		s.resolvConf = "/dev/null"
		var args []string
		env := map[string]string{}
		for line := range strings.SplitSeq(lines, "\n") {
			if variable, ok := strings.CutPrefix(line, "$"); ok {
				name, value, _ := strings.Cut(variable, "=")
				env[name] = value
				continue
			}
			args = append(args, line)
		}
		s.variable = func(name string) (string, bool) { v, ok := env[name]; return v, ok }

		in := &inputs{
			sections:        captureSectionsAnd(sectionNamespace, sectionShow, sectionOutput),
			ignoredSections: actionSections,
		}
		in.load()
		rest, err := in.parseFlags("rules", args)
		if err != nil {
			return
		}
		p, err := in.parse(s, rest)
		if err != nil {
			if strings.Contains(err.Error(), "\n\n") || strings.HasPrefix(err.Error(), ":") {
				t.Errorf("an error without text, or without the name of the input: %q", err)
			}
			return
		}
		p.assumePod()
		redirect, err := s.complete(p, nil)
		if err != nil {
			t.Fatalf("%v: accepted, but incomplete: %v", args, err)
		}
		if err := redirect.Validate(); err != nil {
			t.Fatalf("%v: accepted, but invalid: %v", args, err)
		}
		ruleset := rules.MustCompile(redirect)
		_ = ruleset.String()
		_ = jsonRulesetOf(ruleset)
	})
}

// FuzzListFile reads a file of list elements. The elements must replace @FILE in a list, and no
// element may be empty or contain a separator.
func FuzzListFile(f *testing.F) {
	f.Add("10.0.0.0/8, 10.1.0.0/16\n# a comment\n10.2.0.0/16 10.3.0.0/16 # another\n")
	f.Add(",\n,@x,\x00")
	f.Fuzz(func(t *testing.T, text string) {
		path := filepath.Join(t.TempDir(), "list")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		elements, _, err := readList(path)
		if err != nil {
			t.Fatal(err)
		}
		list := parameter{list: true}
		expanded, err := list.expandLists([]string{"first,@" + path + ",last"})
		want := strings.Join(slices.Concat([]string{"first"}, elements, []string{"last"}), ",")
		if err != nil || len(expanded) != 1 || expanded[0] != want {
			t.Errorf("got %q, %v, want %q", expanded, err, want)
		}
		for _, e := range elements {
			if e == "" || strings.ContainsAny(e, ", \n#") {
				t.Errorf("element %q is empty or contains a separator or a comment", e)
			}
		}
	})
}

// FuzzPacketWords splits the text of packets into words. The words must describe the same packets.
func FuzzPacketWords(f *testing.F) {
	f.Add("out tcp 10.244.1.5:40000 > 10.96.0.1:443 uid 1000",
		"in icmp 10.1.1.1 -> 10.244.1.5 dev out")
	f.Add("out udp [fd00::5]:1 > [fd00::a]:53 dev in",
		"in tcp 10.1.1.1:1 > 10.244.1.5:80 no-listener")
	f.Fuzz(func(t *testing.T, a, b string) {
		packets, errs := parsePackets([]string{a, b})
		if len(errs) > 0 {
			return
		}
		words := strings.Fields(packets[0].String() + " " + packets[1].String())
		second, errs := parsePackets(packetTexts(words))
		if len(errs) > 0 || !slices.EqualFunc(second, packets, func(a, b rules.Packet) bool {
			return a.String() == b.String()
		}) {
			t.Errorf("%q: got %v, %v; want %v", words, second, errs, packets)
		}
	})
}
