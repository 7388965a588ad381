package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
	"github.com/sluice-mesh/sluice/rules"
	"github.com/sluice-mesh/sluice/rules/cmd/internal/color"
)

func TestCountersAreFormattedAsByIptables(t *testing.T) {
	for n, want := range map[uint64]string{
		0: "0", 99999: "99999", 100000: "100K", 9999499: "9999K", 9999500: "10M",
		9999499499: "9999M", 9999500000: "10G", 9999500000000: "10T",
	} {
		if got := new(liveView).number(n); got != want {
			t.Errorf("%d: got %s, want %s", n, got, want)
		}
		if got := (&liveView{exact: true}).number(n); got != strconv.FormatUint(n, 10) {
			t.Errorf("%d with --exact: got %s, want the exact number", n, got)
		}
	}
}

// TestWatchPrintsRates reads the counters twice, with five seconds in between. A counter that has
// decreased has no rate.
func TestWatchPrintsRates(t *testing.T) {
	reading := func(hits ...uint64) rules.Ruleset {
		c := rules.Chain{Name: "c"}
		for _, n := range hits {
			c.Rules = append(c.Rules, rules.Rule{
				Actions: []rules.Action{rules.Count{}, rules.Accept}, Comment: "same",
				Hits: rules.Hits{Packets: n, Bytes: 60 * n},
			})
		}
		c.Rules = append(c.Rules, rules.Rule{Actions: []rules.Action{rules.Drop}})
		return rules.Ruleset{Tables: []rules.Table{{Name: "t", Chains: []rules.Chain{c}}}}
	}
	readings := []rules.Ruleset{reading(1, 20, 300), reading(11, 20, 5)}
	ticks := make(chan time.Time, 1)
	start := time.Date(2026, 11, 25, 12, 0, 0, 0, time.UTC)
	ctx, cancel := context.WithCancel(t.Context())
	s, _ := testSystem()
	var out strings.Builder
	s.stdout = &out
	v := liveView{s: s, read: func() (rules.Ruleset, []string, error) {
		next := readings[0]
		if readings = readings[1:]; len(readings) == 0 {
			cancel()
		} else {
			ticks <- start.Add(5 * time.Second)
		}
		return next, nil, nil
	}}
	if err := v.watch(ctx, start, ticks); err != nil {
		t.Fatal(err)
	}
	const want = `2026-11-25T12:00:00Z
Chain inet t c
 pkts bytes rule
    1    60 accept  # same
   20  1200 accept  # same
  300 18000 accept  # same
    -     - drop

2026-11-25T12:00:05Z
Chain inet t c
 pkts bytes   pkts/s rule
   11   660      2.0 accept  # same
   20  1200      0.0 accept  # same
    5   300        - accept  # same
    -     -        - drop

`
	if out.String() != want {
		t.Errorf("got\n%s\nwant\n%s", out.String(), want)
	}
}

// Warnings are printed when they begin. On a terminal, which each output clears, they are part of
// the output.
func TestWatchPrintsWarnings(t *testing.T) {
	start := time.Date(2026, 11, 25, 12, 0, 0, 0, time.UTC)
	const clearTerminal = "\x1b[H\x1b[2J"
	for _, row := range []struct {
		name                   string
		isTerminal             bool
		wantOutput, wantErrors string
	}{
		{
			"a file", false,
			"2026-11-25T12:00:00Z\n\n" + "2026-11-25T12:00:01Z\n\n" + "2026-11-25T12:00:02Z\n\n",
			"rules: warning: first\nrules: warning: second\n",
		},
		{
			"a terminal", true,
			clearTerminal + "2026-11-25T12:00:00Z\n\nwarning: first\n" +
				clearTerminal + "2026-11-25T12:00:01Z\n\nwarning: first\nwarning: second\n" +
				clearTerminal + "2026-11-25T12:00:02Z\n\nwarning: second\n",
			"",
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			s, errs := testSystem()
			var out strings.Builder
			s.stdout, s.color = &out, color.Painter(row.isTerminal)
			warnings := [][]string{{"first"}, {"first", "second"}, {"second"}}
			v := liveView{s: s, read: func() (rules.Ruleset, []string, error) {
				next := warnings[0]
				warnings = warnings[1:]
				return rules.Ruleset{}, next, nil
			}}
			for i := range len(warnings) {
				if err := v.print(start.Add(time.Duration(i) * time.Second)); err != nil {
					t.Fatal(err)
				}
			}
			if out.String() != row.wantOutput || errs.String() != row.wantErrors {
				t.Errorf("got %q, and on stderr %q; want %q and %q", out.String(), errs.String(),
					row.wantOutput, row.wantErrors)
			}
		})
	}
}

// A pod can add many identical rules. Quadratic work would exceed the time limit of the tests.
func TestManyIdenticalRulesAreShown(t *testing.T) {
	const count = 200_000
	c := rules.Chain{Name: "c", Rules: slices.Repeat([]rules.Rule{
		{Actions: []rules.Action{rules.Count{}}},
	}, count)}
	c.Rules[count-1].Hits.Packets = 7
	live := rules.Ruleset{Tables: []rules.Table{{Name: "t", Chains: []rules.Chain{c}}}}
	v := new(liveView)
	if n := strings.Count(v.text(&live, time.Time{}), "\n"); n != count+2 {
		t.Errorf("%d lines, want %d", n, count+2)
	}
	last := ruleKey{table: "inet t", chain: "c", n: count - 1}
	if n := v.before[last].Packets; n != 7 {
		t.Errorf("the last rule has counted %d packets, want 7", n)
	}
}

// TestExplainStatesWhatItAssumes checks that the assumed reverse path is part of text and JSON.
func TestExplainStatesWhatItAssumes(t *testing.T) {
	ns := netnstest.NewPair(t).Pod
	within(t, ns, "iptables-legacy", "-t", "raw", "-A", "PREROUTING", "-m", "rpfilter", "--invert", "-j", "DROP")
	path := fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), ns.FD())
	const packet = "in tcp 10.9.9.9:5000 > 10.244.1.5:80"
	_, text, _ := runCommand("", "", "explain", "--netns", path, "--live", packet)
	_, object, _ := runCommand("", "", "explain", "--netns", path, "--live", "-o", "json", packet)
	const assumption = "the route to the source uses the input interface: yes"
	if want := "  Assumed: " + assumption + "\n"; !strings.Contains(text, want) {
		t.Errorf("got %s\nwant %s", text, want)
	}
	if want := `"` + assumption + `"`; !strings.Contains(object, want) {
		t.Errorf("got %s\nwant %s", object, want)
	}
}

// TestExplainWarnsOfAnotherInterface verifies that explain warns if the namespace routes a packet
// through an interface other than the packet's.
func TestExplainWarnsOfAnotherInterface(t *testing.T) {
	pair := netnstest.NewPair(t)
	within(t, pair.Pod, "ip", "route", "add", "10.9.9.8", "dev", "lo")
	path := fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), pair.Pod.FD())
	for _, row := range []struct{ packet, want string }{
		{"out tcp 10.1.1.1:4000 > 10.9.9.8:80 uid 0", "routes this packet through interface lo; to explain it for lo, add dev lo"},
		{"out tcp 10.1.1.1:4000 > 10.9.9.8:80 uid 0 dev lo", ""},
		{fmt.Sprintf("out tcp %s:4000 > %s:80 uid 0", pair.PodIP4, pair.NeighborIP4), ""},
		{"out tcp 10.1.1.1:4000 > 10.9.9.8:80 uid 0 bound", ""},
		{"in tcp 10.1.1.1:4000 > 10.9.9.8:80", ""},
	} {
		_, _, stderr := runCommand("", "", "explain", "--netns", path, "--live", row.packet)
		if !strings.Contains(stderr, row.want) || row.want == "" && stderr != "" {
			t.Errorf("%s: got %q, want %q", row.packet, stderr, row.want)
		}
	}
}
