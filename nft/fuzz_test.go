package nft

import (
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/nft/internal/nlmsg"
	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
	"github.com/sluice-mesh/sluice/rules"
)

// FuzzDecodeRule checks that no expression is lost: a rule with an unsupported expression is
// decoded as a rule with an unknown expression. It also checks that each rule equals itself.
func FuzzDecodeRule(f *testing.F) {
	for _, e := range examples {
		tx, err := Encode(compileWith(e.change))
		if err != nil {
			f.Fatal(err)
		}
		for buf := tx.Bytes(); len(buf) > 0; buf = buf[nlmsg.Align(int(native.Uint32(buf))):] {
			if firstMessageType(buf) == messageType(unix.NFT_MSG_NEWRULE) {
				f.Add(buf[unix.NLMSG_HDRLEN+4 : native.Uint32(buf)])
			}
		}
	}
	sets := decodedSets{
		"interval": {
			interval: true,
			elements: []element{{key: []byte{10, 0, 0, 0}}, {key: []byte{11, 0, 0, 0}, end: true}},
		},
		"ports": {elements: []element{{key: []byte{0, 80}}, {key: []byte{1, 187}}}},
		"empty": {},
		"odd": {
			interval: true,
			elements: []element{{key: nil}, {key: []byte{1}, end: true}, {key: []byte{1, 2, 3}}},
		},
	}
	for name := range sets {
		f.Add(lookupRule(name))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, family := range []rules.Family{rules.Inet, rules.IPv4, rules.IPv6} {
			r := decodeRule(family, sets, data)
			if hasUnknownName(data) && !strings.Contains(r.String(), "unknown(") {
				t.Errorf("%s has no unknown expression, want at least one", &r)
			}
			rs := rules.Ruleset{Tables: []rules.Table{{
				Family: family, Chains: []rules.Chain{{Rules: []rules.Rule{r}}},
			}}}
			if !rules.Equal(rs, rs) {
				t.Errorf("a rule differs from itself: %s", &r)
			}
		}
	})
}

// FuzzDecodeSet checks that if the decoder of addresses decodes an interval set, the decoder of
// keys returns the same addresses.
func FuzzDecodeSet(f *testing.F) {
	for _, elements := range [][]element{
		{{[]byte{11, 0, 0, 0}, true}, {[]byte{10, 0, 0, 0}, false}},
		{{[]byte{10, 0, 0, 0}, false}, {[]byte{11, 0, 0, 0}, true}, {[]byte{12, 0, 0, 0}, false}},
		{{make([]byte, 16), false}},
	} {
		f.Add([]byte(dumped(elements).lists[1]), len(elements[0].key))
		f.Add(appendElement(nil, elements[0]), len(elements[0].key))
	}
	f.Fuzz(func(t *testing.T, data []byte, keyLength int) {
		byRanges, byKeys := decodedSet{interval: true, keyLength: keyLength & 0xffff},
			decodedSet{interval: true}
		byRanges.addElements(data)
		byKeys.addElements(data)
		got := byRanges.addrRanges()
		keys, err := byKeys.keys()
		if len(got) == 0 {
			return
		}
		if err != nil {
			t.Fatalf("addresses %s, error of keys: %v", formatRanges(got), err)
		}
		m, ok := addrMatch(rules.FamilyOf(got[0].From()), fieldDestination, false,
			values{keys: keys})
		if !ok || !slices.Equal(got, m.(rules.MatchAddr).Ranges) {
			t.Errorf("addresses %s, want %v as decoded from the keys", formatRanges(got), m)
		}
	})
}

// hasUnknownName reports whether a rule has an expression with an unknown name.
func hasUnknownName(rule attributes) bool {
	known := []string{
		"meta", "ct", "payload", "immediate", "bitwise", "byteorder", "cmp", "range", "lookup",
		"counter", "redir", "tproxy", "match", "target", "nat", "log",
	}
	found := false
	attributes(rule.Get(unix.NFTA_RULE_EXPRESSIONS)).Each(func(_ uint16, e []byte) {
		found = found || !slices.Contains(known, attributes(e).Text(unix.NFTA_EXPR_NAME))
	})
	return found
}

// lookupRule returns a rule that looks up the destination address in a set.
func lookupRule(set string) []byte {
	e := &encoder{table: &rules.Table{Family: rules.IPv4}}
	list := e.beginNest(unix.NFTA_RULE_EXPRESSIONS)
	e.payload(addrField(rules.IPv4, rules.Destination))
	e.lookup(false, setRef{name: set})
	e.endNest(list)
	return e.buf
}

// FuzzReceive checks that reading ends without a panic for any received data.
func FuzzReceive(f *testing.F) {
	for _, seed := range recordAnswers(f) {
		f.Add(seed)
	}
	rs := example("exclusions-dual")
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) == 0 || len(data) > 32<<10 {
			return
		}
		c := scripted(t, nil, func(request []byte, _ func([]byte) [][]byte) [][]byte {
			return [][]byte{withSequenceOf(request, data)}
		})
		c.setTimeout(t, time.Millisecond)
		_, _ = c.readSluiceTable(&foundTable{Table: rules.Table{Name: rules.TableName}},
			newExpectation(&rs.Tables[0]))
		_, _ = c.findSluiceTable()
		tables, _, _ := c.listTables(nil)
		for _, table := range tables {
			_ = rules.Ruleset{Tables: []rules.Table{table.Table}}.String()
		}
	})
}

// withSequenceOf returns a copy of a datagram whose messages have the sequence number of the
// request.
func withSequenceOf(request, datagram []byte) []byte {
	datagram = slices.Clone(datagram)
	for rest := datagram; len(rest) >= unix.NLMSG_HDRLEN; {
		copy(rest[8:12], request[8:12])
		length := int64(nlmsg.Align(int(native.Uint32(rest))))
		if length < unix.NLMSG_HDRLEN || length > int64(len(rest)) {
			break
		}
		rest = rest[length:]
	}
	return datagram
}

// recordAnswers returns the kernel's answers to the requests that read an example, and an error
// message. Without root it returns nothing.
func recordAnswers(f *testing.F) [][]byte {
	f.Helper()
	if unix.Geteuid() != 0 {
		return nil
	}
	ns := netnstest.New(f)
	mustApply(f, ns, example("exclusions-dual"), Created)
	var mu sync.Mutex
	var seen [][]byte
	c := scripted(f, ns, func(request []byte, kernel func([]byte) [][]byte) [][]byte {
		mu.Lock()
		defer mu.Unlock()
		datagrams := kernel(request)
		seen = append(seen, datagrams...)
		return datagrams
	})
	found, err := c.findSluiceTable()
	if err != nil {
		f.Fatal(err)
	}
	if _, err := c.readSluiceTable(found, newExpectation(nil)); err != nil {
		f.Fatal(err)
	}
	mu.Lock()
	defer mu.Unlock()
	return append(seen, encodeError(firstRequest, unix.ENOENT, unix.NLM_F_CAPPED))
}
