package main

import (
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/sluice-mesh/sluice/nft"
	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
)

// exchange opens a TCP connection from the namespace and reads a byte. The connection is closed
// when the test ends.
func exchange(t *testing.T, ns *netns.NS, address string) {
	t.Helper()
	if err := ns.Do(func() error {
		c, err := net.Dial("tcp4", address)
		if err != nil {
			return err
		}
		t.Cleanup(func() { _ = c.Close() })
		_, err = io.ReadFull(c, make([]byte, 1))
		return err
	}); err != nil {
		t.Fatal(err)
	}
}

// answerAt accepts connections in the namespace until the test ends, and writes one byte to each.
func answerAt(t *testing.T, ns *netns.NS, address string) {
	t.Helper()
	if err := ns.Do(func() error {
		l, err := net.Listen("tcp4", address)
		if err != nil {
			return err
		}
		t.Cleanup(func() { _ = l.Close() })
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				_, _ = c.Write([]byte("x"))
				t.Cleanup(func() { _ = c.Close() })
			}
		}()
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

// TestTracePrintsEachConnectionOnceDespiteForeignNFTrace traces two connections in a namespace
// without rules, and in namespaces with rules that set nftrace.
func TestTracePrintsEachConnectionOnceDespiteForeignNFTrace(t *testing.T) {
	for _, tc := range []struct{ name, rules, want string }{
		{"no rules", "", "not captured: no rule captures it"},
		{
			// The kernel reports the packets of the established connection too.
			"a rule enables nftrace",
			`table ip t {
				chain out { type filter hook output priority -300; meta nftrace set 1; }
				chain in { type filter hook prerouting priority -300; meta nftrace set 1; }
			}`,
			"chain ip t out rule 1",
		},
		{
			// The kernel does not report the rule at priority 20.
			"a rule disables nftrace",
			`table ip t {
				chain out { type filter hook output priority 10; meta nftrace set 0; }
				chain late { type filter hook output priority 20; tcp dport 1-65535 counter; }
			}`,
			"not compared with the model: a rule sets nftrace",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			pair := netnstest.NewPair(t)
			if tc.rules != "" {
				within(t, pair.Pod, "nft", tc.rules)
			}
			answerAt(t, pair.Neighbor, ":7001")
			answerAt(t, pair.Neighbor, ":7002")
			lines, _ := startTrace(t, pair.Pod, "-v", "--count", "2")
			text := make(chan string)
			go func() {
				var b strings.Builder
				for lines.Scan() {
					fmt.Fprintln(&b, lines.Text())
				}
				text <- b.String()
			}()
			exchange(t, pair.Pod, "10.9.9.9:7001")
			exchange(t, pair.Pod, "10.9.9.9:7002")
			got := <-text
			for _, want := range []string{"> 10.9.9.9:7001 uid 0", "> 10.9.9.9:7002 uid 0"} {
				if strings.Count(got, want) != 1 {
					t.Errorf("got %s\nwant one line with %q", got, want)
				}
			}
			if !strings.Contains(got, tc.want) || strings.Contains(got, "please report") {
				t.Errorf("got %s\nwant %q, and no difference to report", got, tc.want)
			}
		})
	}
}

// TestTraceOfASetWhoseElementsExpire traces connections before and after an element of a set
// expires. The kernel sends no event when an element expires.
func TestTraceOfASetWhoseElementsExpire(t *testing.T) {
	pair := netnstest.NewPair(t)
	within(t, pair.Pod, "nft", `table ip t {
		set s { type inet_service; flags timeout; elements = { 7001 timeout 3s }; }
		chain out { type filter hook output priority 0; tcp dport @s counter; }
	}`)
	answerAt(t, pair.Neighbor, ":7001")
	lines, _ := startTrace(t, pair.Pod, "-v", "--count", "3")
	for range 2 { // the trace reads the rules again after the first packet
		exchange(t, pair.Pod, "10.9.9.9:7001")
		for lines.Scan() {
			if strings.Contains(lines.Text(), "connected by") {
				break
			}
		}
	}
	for {
		read, err := nft.ReadAll(pair.Pod)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(read.String(), "7001") {
			break // the element has expired
		}
		time.Sleep(50 * time.Millisecond)
	}
	exchange(t, pair.Pod, "10.9.9.9:7001")
	var text strings.Builder
	for lines.Scan() {
		fmt.Fprintln(&text, lines.Text())
	}
	if got := text.String(); strings.Contains(got, "please report") ||
		strings.Count(got, "not compared with the model") == 0 {
		t.Errorf("got %s\nwant packets that are not compared, and no difference to report", got)
	}
}
