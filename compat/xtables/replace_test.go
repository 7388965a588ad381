package xtables

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/sluice-mesh/sluice/nft/istio/istiotest"
	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
	"github.com/sluice-mesh/sluice/rules"
)

// The kernel rejects a replacement that expects another number of entries in the old table.
func TestKernelRejectsAnotherNumberOfEntries(t *testing.T) {
	ns := netnstest.New(t)
	istiotest.Restore(t, ns, istiotest.Legacy, rules.IPv4, "*raw\nCOMMIT\n")
	err := withTable(ns, "replace", ID{rules.IPv4, "raw"}, func(c *conn) error {
		b, err := c.readBlob()
		if err != nil {
			return err
		}
		_, err = c.replace(b, b.count+1, false)
		return err
	})
	if !errors.Is(err, ErrChanged) {
		t.Errorf("error %v, want %v", err, ErrChanged)
	}
}

func TestErrorsNameNamespaceAndTable(t *testing.T) {
	ns := netnstest.New(t)
	for _, tc := range []struct {
		id   ID
		use  func(*conn) error
		want string
	}{
		{
			ID{rules.Inet, "nat"},
			nil,
			"iptables-legacy inet nat: test: iptables has no tables of family inet",
		},
		{ID{rules.IPv4, ""}, nil, `iptables-legacy ip : test: "" is not a table name`},
		{ID{rules.IPv4, strings.Repeat("x", 32)}, nil, "is not a table name"},
		{ID{rules.IPv6, "nothing"}, func(c *conn) error {
			_, err := c.read()
			return err
		}, "getsockopt: no such file"},
		{ID{rules.IPv6, "raw"}, func(c *conn) error {
			return c.get(1000, c.newBuffer(nameSize))
		}, "the kernel has no iptables-legacy"},
	} {
		err := withTable(ns, "test", tc.id, tc.use)
		if err == nil || !strings.Contains(err.Error(), tc.want) ||
			!strings.HasPrefix(err.Error(), ns.String()+": iptables-legacy") {
			t.Errorf("error %v, want %s", err, tc.want)
		}
	}
}

// Each packet is counted exactly once, even if the table is replaced at the same time.
func TestNoPacketIsLostFromCounters(t *testing.T) {
	ns := netnstest.New(t)
	istiotest.Restore(t, ns, istiotest.Legacy, rules.IPv4,
		"*mangle\n[0:0] -A OUTPUT -p udp -m udp --dport 9 -j ACCEPT\nCOMMIT\n")
	const replacements, packets = 20, 20000 // minimum numbers
	var sent, replaced atomic.Int64
	defer replaced.Add(replacements) // makes the sender stop if the test fails
	done := make(chan error, 1)
	go func() {
		done <- ns.Do(func() error {
			conn, err := net.ListenPacket("udp4", "127.0.0.1:0")
			if err != nil {
				return err
			}
			defer conn.Close()
			for sent.Load() < packets || replaced.Load() < replacements {
				if _, err := conn.WriteTo([]byte("x"), &net.UDPAddr{
					IP: net.IPv4(127, 0, 0, 1), Port: 9,
				}); err != nil {
					return err
				}
				sent.Add(1)
			}
			return nil
		})
	}()
	table, err := Read(ns, rules.IPv4, "mangle")
	if err != nil {
		t.Fatal(err)
	}
	for ; len(done) == 0; replaced.Add(1) {
		if err := Replace(ns, table); err != nil {
			t.Fatal(err)
		}
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	// 20 bytes of the IP header, 8 of the UDP header, 1 of data
	want := fmt.Sprintf("[%d:%d] -A OUTPUT", sent.Load(), sent.Load()*29)
	if got := istiotest.Save(t, ns, istiotest.Legacy, rules.IPv4); !strings.Contains(got, want) {
		t.Errorf("after %d replacements and %d packets: want %s, got:\n%s", replaced.Load(),
			sent.Load(), want, got)
	}
}

// A table that Replace would make too large to read is not written.
func TestTooLargeTableIsNotWritten(t *testing.T) {
	ns := netnstest.New(t)
	table, err := Open(ns, rules.IPv4, "filter")
	if err != nil {
		t.Fatal(err)
	}
	accept, err := NewRule(rules.IPv4, Header{}, nil, Target{Verdict: Accept})
	if err != nil {
		t.Fatal(err)
	}
	output := table.Chain("OUTPUT")
	output.Rules = slices.Repeat([]Rule{accept}, maxCost/entryCost)
	if err := Replace(ns, table); !errors.Is(err, ErrTooLarge) || errors.As(err, new(*ReplacedError)) {
		t.Errorf("error %v, want %v", err, ErrTooLarge)
	}
	if table, err = Read(ns, rules.IPv4, "filter"); err != nil {
		t.Fatal(err)
	}
	if n := len(table.Chain("OUTPUT").Rules); n > 0 {
		t.Errorf("the kernel has %d rules in OUTPUT, want none", n)
	}
}
