package rules_test

import (
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/sluice-mesh/sluice/rules"
	"github.com/sluice-mesh/sluice/rules/diff"
)

// checkList verifies properties of every list parser: a list is valid if and only if each element
// is, the error names the invalid elements, and a parsed list prints as a text that parses to the
// same list.
func checkList[T fmt.Stringer](t *testing.T, parse func(string) ([]T, error), text string) []T {
	t.Helper()
	got, err := parse(text)
	anyInvalid := false
	for element := range strings.SplitSeq(text, ",") {
		element = strings.TrimSpace(element)
		if _, elementErr := parse(element); elementErr != nil {
			anyInvalid = true
			if err == nil || !strings.Contains(err.Error(), strconv.Quote(element)) {
				t.Fatalf("%q: the error %v does not name %q", text, err, element)
			}
		}
	}
	if (err != nil) != anyInvalid {
		t.Fatalf("%q: error %v, but an element is invalid: %t", text, err, anyInvalid)
	}
	if err != nil {
		if got != nil {
			t.Fatalf("%q: want no values together with the error %v, got %v", text, err, got)
		}
		return nil
	}
	printed := make([]string, len(got))
	for i, v := range got {
		printed[i] = v.String()
	}
	second, err := parse(strings.Join(printed, ","))
	if err != nil || !slices.EqualFunc(second, got, func(a, b T) bool {
		return reflect.DeepEqual(a, b)
	}) {
		t.Fatalf("%q: parsed as %v, which is parsed as %v (%v)", text, got, second, err)
	}
	return got
}

func addSeeds(f *testing.F, seeds ...string) {
	for _, seed := range seeds {
		f.Add(seed)
	}
}

func FuzzParsePorts(f *testing.F) {
	addSeeds(f, "", "80", "80, 443", ",80,,", "8000:9000", "8000-9000,8500-9500", "9000-8000",
		"0-65535", "65536", "80a", "*", "1:2-3", "-")
	f.Fuzz(func(t *testing.T, text string) {
		last := -1
		for _, r := range checkList(t, rules.ParsePorts, text) {
			if int(r.First) <= last || r.First > r.Last {
				t.Fatalf("%q: range %s is not ascending, or not above the previous port %d", text, r,
					last)
			}
			last = int(r.Last)
		}
		selection, err := rules.ParsePortSelection(text)
		if selection.All != (text == "*") || selection.All && (err != nil || selection.Ports != nil) {
			t.Fatalf("%q: selection %+v (%v), want all ports if and only if the text is *", text,
				selection, err)
		}
	})
}

func FuzzParsePrefixes(f *testing.F) {
	addSeeds(f, "", "10.0.0.0/8", "10.1.2.3/8, fd00::/8", "::ffff:10.0.0.0/104", "0.0.0.0/0",
		"::/0", "10.0.0.0", "*", "fe80::1%eth0/64", "1.2.3.4/33")
	f.Fuzz(func(t *testing.T, text string) {
		prefixes := checkList(t, rules.ParsePrefixes, text)
		ranges := rules.AddrRanges(prefixes)
		for _, p := range prefixes {
			if p.Addr().Zone() != "" {
				t.Fatalf("%q: prefix %s has a zone", text, p)
			}
		}
		for i := 1; i < len(ranges); i++ {
			if before := ranges[i-1].To(); before.Compare(ranges[i].From()) >= 0 ||
				before.Next() == ranges[i].From() {
				t.Fatalf("%q: ranges %s and %s are not merged", text, ranges[i-1], ranges[i])
			}
		}
	})
}

func FuzzParseIDs(f *testing.F) {
	addSeeds(f, "", "1337", "1338, 1337", "2000-2999", "daemon,202", "istio-proxy", "4294967295",
		"0-4294967294", "5-3", "-1", "*")
	f.Fuzz(func(t *testing.T, text string) {
		for _, r := range checkList(t, func(text string) ([]rules.IDRange, error) {
			return rules.ParseIDs(text, nil)
		}, text) {
			if r.First > r.Last || r.Last == 1<<32-1 {
				t.Fatalf("%q: range %s, want an ascending range below 4294967295", text, r)
			}
		}
		checkList(t, func(text string) ([]rules.IDRange, error) {
			return rules.ParseIDs(text, lookup)
		}, text)
	})
}

func FuzzParseInterfaces(f *testing.F) {
	addSeeds(f, "", "eth0", "not-istio-nic, eth1", "eth+", "eth*", "+", "eth++", "a/b", "..",
		"abcdefghijklmno", "abcdefghijklmnop", `"`, "é")
	f.Fuzz(func(t *testing.T, text string) {
		r := rules.DefaultRedirect()
		r.ExcludeInterfaces = checkList(t, rules.ParseInterfaces, text)
		if err := r.Validate(); err != nil {
			t.Fatalf("%q is accepted, but not valid: %v", text, err)
		}
	})
}

func FuzzParseMark(f *testing.F) {
	addSeeds(f, "0", "1337", "0x539", "0XFFFFFFFF", "4294967296", "0x", "-1", "1_000", "0x1/0x1")
	f.Fuzz(func(t *testing.T, text string) {
		n, err := rules.ParseMark(text)
		if err != nil {
			return
		}
		for _, format := range []string{"%d", "0x%x", "0X%X"} {
			if second, err := rules.ParseMark(fmt.Sprintf(format, n)); err != nil || second != n {
				t.Fatalf("%q: %d in %s is parsed as %d (%v)", text, n, format, second, err)
			}
		}
	})
}

// FuzzParsers fuzzes all parsers: they must not panic, and an error must name the value, unless the
// text is a list.
func FuzzParsers(f *testing.F) {
	addSeeds(f, "", "REDIRECT", "TPROXY", "tproxy", "true", "banana", "1", "127.0.0.1/8", "::1/128",
		"10.96.0.10", "fe80::1%eth0", "15001", "*")
	f.Fuzz(func(t *testing.T, text string) {
		for name, parse := range parsers {
			if _, err := parse(text); err != nil && !strings.Contains(text, ",") &&
				!strings.Contains(err.Error(), strconv.Quote(strings.TrimSpace(text))) &&
				!strings.Contains(err.Error(), strconv.Quote(text)) {
				t.Fatalf("%s %q: error %v does not name the value", name, text, err)
			}
		}
	})
}

func FuzzParsePacket(f *testing.F) {
	addSeeds(f,
		"out tcp 10.244.1.5:40000 > 10.96.0.1:443 uid 1000",
		"in tcp [fd00::9]:51000 > [fd00::5]:8080 dev eth0 state established",
		"out udp 127.0.0.1:1 > 127.0.0.53:53 no-socket mark 0x539 ctmark 1",
		"in icmp 10.1.1.1 > 10.244.1.5 state related",
		"in tcp 10.1.1.1:1 > 10.244.1.5:80 flags syn,ack no-listener",
		"out 132 ::1 > ::1 dev lo gid 7",
		"in tcp 10.1.1.1:1 > 10.244.1.5:80 missing-listeners 15008,127.0.0.1:15006",
		"out tcp 10.244.1.5:1 > 10.244.1.5:80 no-socket transparent-socket transparent-sender",
		"out ipv6-icmp fd00::1 > fd00::2 dev lo kernel-socket selects-interface state invalid",
		"in tcp [::ffff:1.2.3.4]:1 > [::ffff:1.2.3.4]:2 flags none",
		"in tpc x > y dev")
	compiled := rules.MustCompile(typical(tproxyMode, ipv6))
	f.Fuzz(func(t *testing.T, text string) {
		p, err := rules.ParsePacket(text)
		if err != nil {
			if !strings.Contains(err.Error(), strconv.Quote(text)) {
				t.Fatalf("error %v does not name the packet %q", err, text)
			}
			return
		}
		second, err := rules.ParsePacket(p.String())
		if err != nil || !reflect.DeepEqual(second, p) {
			t.Fatalf("%q\n\tis printed as %q\n\tand parsed as %q (%v)", text, p, second, err)
		}
		if outcome := diff.Explain(&compiled, p).Outcome; outcome.Undecided != "" {
			t.Fatalf("%q: %s, want a decided outcome", p, outcome)
		}
	})
}
