package save_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
)

// A costlyText is output of iptables-save that is expensive to parse, to compare, or to explain
// packets with.
type costlyText struct {
	name  string
	table string
	// lines writes the chains and rules of the table for size n.
	lines func(w *costlyWriter, n int)
	// decidedSize is a size at which the comparison must not end with "cannot decide", or 0.
	decidedSize int
}

// A costlyWriter writes commands. Its random values are reproducible.
type costlyWriter struct {
	strings.Builder
	*rand.Rand
}

func (w *costlyWriter) line(format string, values ...any) { fmt.Fprintf(w, format+"\n", values...) }

func (w *costlyWriter) address() string {
	return fmt.Sprintf("%d.%d.%d.%d", 1+w.IntN(220), w.IntN(256), w.IntN(256), w.IntN(256))
}

func (w *costlyWriter) prefix() string { return fmt.Sprintf("%s/%d", w.address(), 4+w.IntN(29)) }

func (w *costlyWriter) portRange() string {
	first := w.IntN(1 << 15)
	return fmt.Sprintf("%d:%d", first, first+w.IntN(1<<15))
}

// nested writes n chains. Each chain except the last one jumps twice to the next chain. between is
// the rule between the two jumps, or empty. last is the rule of the last chain.
func (w *costlyWriter) nested(n int, between, last string) {
	for i := range n {
		w.line(":C%d - [0:0]", i)
	}
	w.line("-A OUTPUT -p tcp -j C0")
	for i := range n - 1 {
		w.line("-A C%d -j C%d", i, i+1)
		if between != "" {
			w.line("-A C%d %s", i, between)
		}
		w.line("-A C%d -j C%d", i, i+1)
	}
	w.line("-A C%d %s", n-1, last)
}

// costlyTexts are texts that take disproportionate time or memory in a straightforward
// implementation.
var costlyTexts = []costlyText{
	{"nested jumps", "nat", func(w *costlyWriter, n int) {
		w.nested(n, "", "-p tcp --dport 80 -j REDIRECT --to-ports 15001")
	}, 14},
	{"nested jumps with an unchanged mark", "mangle", func(w *costlyWriter, n int) {
		w.nested(n, "-j MARK --set-xmark 0x0/0x0", "-j DROP")
	}, 20},
	{"nested jumps with a changed mark", "mangle", func(w *costlyWriter, n int) {
		w.nested(n, "-p tcp --dport 5 -j MARK --xor-mark 0x1", "-j DROP")
	}, 20},
	{"nested jumps with random rules", "nat", func(w *costlyWriter, n int) {
		w.nested(min(n, 64), "",
			"-m statistic --mode random --probability 0.5 -j REDIRECT --to-ports 15001")
	}, 0},
	{"independent rules that set one bit each", "mangle", func(w *costlyWriter, n int) {
		for i := range n {
			w.line("-A OUTPUT -m owner --uid-owner %d -j MARK --or-mark 0x%x", i, uint32(1)<<(i%32))
		}
	}, 18},
	{"rules that flip bits, with several matches", "mangle", func(w *costlyWriter, n int) {
		for range n {
			w.line("-A OUTPUT -s %s -d %s -p tcp --dport %s -j MARK --xor-mark 0x%x", w.prefix(),
				w.prefix(), w.portRange(), w.Uint32())
		}
	}, 0},
	{"rules that set different marks", "mangle", func(w *costlyWriter, n int) {
		for i := range n {
			w.line("-A OUTPUT -d %s -j MARK --set-mark %d", w.address(), i+1)
		}
	}, 100},
	{"marks that depend on marks", "mangle", func(w *costlyWriter, n int) {
		for range n {
			mask := w.Uint32()
			w.line("-A OUTPUT -m mark --mark 0x%x/0x%x -j MARK --xor-mark 0x%x", w.Uint32()&mask,
				mask, w.Uint32())
		}
	}, 0},
	{"saved and restored marks", "mangle", func(w *costlyWriter, n int) {
		for range n {
			w.line("-A OUTPUT -d %s -j CONNMARK --restore-mark", w.prefix())
			w.line("-A OUTPUT -s %s -j CONNMARK --save-mark --nfmask 0x%x --ctmask 0x%x",
				w.prefix(), w.Uint32(), w.Uint32())
		}
	}, 0},
	{"lists of sources and destinations", "nat", func(w *costlyWriter, n int) {
		w.line("-A OUTPUT -s %s -d %s -j ACCEPT", addresses(n, 10), addresses(n, 20))
	}, 1500},
	{"added and deleted chains", "nat", func(w *costlyWriter, n int) {
		for i := range n {
			w.line("-N c%d", i)
		}
		for i := range n {
			w.line("-X c%d", i)
		}
	}, 20_000},
	{"added and deleted rules", "nat", func(w *costlyWriter, n int) {
		for i := range n {
			w.line("-A OUTPUT -p tcp --dport %d -j ACCEPT", i%65000)
		}
		for i := range n {
			w.line("-D OUTPUT -p tcp --dport %d -j ACCEPT", (n-1-i)%65000)
		}
	}, 6000},
	{"interfaces", "nat", func(w *costlyWriter, n int) {
		for i := range n {
			w.line("-A OUTPUT -p tcp -o i%x -j REDIRECT --to-ports %d", i, 15000+i%2)
		}
	}, 1000},
	{"interface name patterns", "nat", func(w *costlyWriter, n int) {
		for i := range n {
			w.line("-A OUTPUT -p tcp -o i%x+ -j REDIRECT --to-ports %d", i, 15000+i%2)
		}
	}, 300},
	{"destinations", "nat", func(w *costlyWriter, n int) {
		for i := range n {
			w.line("-A OUTPUT -p tcp -d 10.1.%d.%d -j DNAT --to-destination %s:%d", i>>8&0xff,
				i&0xff, w.address(), i%65000+1)
		}
	}, 500},
	{"DNAT to ranges", "nat", func(w *costlyWriter, n int) {
		for i := range n {
			w.line("-A OUTPUT -p tcp -d 10.1.%d.%d -j DNAT --to-destination 10.0.0.1-10.0.1.%d:%d-%d", i>>8&0xff, i&0xff, i%250, i%60000+1, i%60000+2)
		}
	}, 0},
	{"zones", "raw", func(w *costlyWriter, n int) {
		for i := range n {
			w.line("-A OUTPUT -p tcp -d 10.1.%d.%d -j CT --zone %d", i>>8&0xff, i&0xff, i%65000+1)
			w.line("-A OUTPUT -s %s -j DROP", w.prefix())
		}
	}, 0},
	{"transparent listeners", "mangle", func(w *costlyWriter, n int) {
		for i := range n {
			w.line("-A PREROUTING -p tcp -s 10.1.%d.%d -j TPROXY --on-port %d --on-ip %s --tproxy-mark 0x%x/0xffffffff",
				i>>8&0xff, i&0xff, i%65000+1, w.address(), i)
		}
	}, 0},
	{"unknown matches", "nat", func(w *costlyWriter, n int) {
		for i := range n {
			w.line("-A OUTPUT -p tcp -m foo --bar %d -j REDIRECT --to-ports %d", i, 15000+i%2)
		}
	}, 0},
	{"unknown targets", "nat", func(w *costlyWriter, n int) {
		for i := range n {
			w.line("-A OUTPUT -d 10.1.%d.%d -j FOO --bar %d", i>>8&0xff, i&0xff, i)
		}
	}, 0},
	{"rules with rate limits", "mangle", func(w *costlyWriter, n int) {
		for i := range n {
			w.line("-A OUTPUT -m limit --limit %d/s -j MARK --xor-mark 0x%x", i%900+1, w.Uint32())
		}
	}, 0},
	{"random rules in a chain with many callers", "mangle", func(w *costlyWriter, n int) {
		w.line(":C - [0:0]\n-A C -m statistic --mode random --probability 0.5 -j MARK --xor-mark 0x1")
		for range n {
			w.line("-A OUTPUT -p tcp -j C")
		}
	}, 0},
	{"rules of all kinds", "nat", func(w *costlyWriter, n int) {
		for i := range n {
			target := []string{
				"ACCEPT", "RETURN", "REDIRECT --to-ports 15001",
				"DNAT --to-destination " + w.address(),
			}[i%4]
			w.line("-A OUTPUT -s %s -d %s -p tcp --dport %d -j %s", w.prefix(), w.prefix(),
				w.IntN(1<<16), target)
		}
	}, 0},
	{"a long rule in a chain with many callers", "mangle", func(w *costlyWriter, n int) {
		w.line(":C - [0:0]\n-A C -s %s -j MARK --xor-mark 0x1", addresses(5000, 10))
		for range n {
			w.line("-A OUTPUT -p tcp -j C")
		}
	}, 0},
	{"a loop of jumps", "nat", func(w *costlyWriter, n int) {
		for i := range n {
			w.line(":c%d - [0:0]", i)
		}
		w.line("-A OUTPUT -j c0")
		for i := range n {
			w.line("-A c%d -j c%d", i, (i+1)%n)
		}
	}, 0},
}

// text returns the text of size n.
func (c costlyText) text(n int) string {
	w := &costlyWriter{Rand: rand.New(rand.NewPCG(1, 2))}
	w.line("*%s", c.table)
	c.lines(w, n)
	return w.String() + "COMMIT\n"
}
