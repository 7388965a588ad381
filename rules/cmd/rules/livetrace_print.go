package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/sluice-mesh/sluice/compat/livetrace"
	"github.com/sluice-mesh/sluice/rules"
)

// A tracedPacket is a line of rules trace -o json.
type tracedPacket struct {
	Time        string   `json:"time"`
	Packet      string   `json:"packet"`
	Direction   string   `json:"direction"`
	Protocol    string   `json:"protocol"`
	From        string   `json:"from"`
	To          string   `json:"to"` // the original destination
	UID         *uint32  `json:"uid,omitempty"`
	PID         int      `json:"pid,omitempty"`
	Process     string   `json:"process,omitempty"`
	Outcome     string   `json:"outcome"`
	Sentence    string   `json:"sentence"`
	Path        []string `json:"path"`
	Differences []string `json:"differences,omitempty"`
	NotCompared string   `json:"notCompared,omitempty"`
	Reproducer  string   `json:"reproducer,omitempty"` // file with the ruleset and the packet
}

func (tracedPacket) kind() string { return "TracedPacket" }

// mostReproducers limits the number of files that a trace writes.
const mostReproducers = 10

// reproducer writes a file with everything that reproduces a difference: the packet, both paths,
// and the ruleset in nft's syntax.
func (t *liveTracer) reproducer(o livetrace.Observation) (string, error) {
	file, err := os.CreateTemp("", "rules-trace-*.nft")
	if err != nil {
		return "", err
	}
	b := new(strings.Builder)
	fmt.Fprintf(b, "# rules explain --live '%s'\n", o.Packet)
	for _, d := range o.Differences {
		fmt.Fprintf(b, "# %s\n", d)
	}
	for _, s := range o.Steps {
		fmt.Fprintf(b, "# kernel: %s: %s\n", s.Hook, s)
	}
	b.WriteString(t.ruleset.String())
	_, err = file.WriteString(b.String())
	return file.Name(), errors.Join(err, file.Close())
}

// A traceSummary is the last line of rules trace -o json.
type traceSummary struct {
	Packets     int            `json:"packets"`
	Lost        uint32         `json:"lost"`
	Differences int            `json:"differences"`
	Sentences   map[string]int `json:"sentences"`
}

func (traceSummary) kind() string { return "TraceSummary" }

func (t *liveTracer) print(o livetrace.Observation, sender livetrace.Process, known bool) error {
	t.summary.Packets++
	t.summary.Sentences[o.Message]++
	if len(o.Differences) > 0 {
		t.summary.Differences++
	}
	direction, user := "in", ""
	line := tracedPacket{
		Time: o.Time.UTC().Format("2006-01-02T15:04:05.000Z"), Packet: o.Packet.String(),
		Protocol: o.Packet.Protocol.String(), From: o.Packet.Source.String(),
		To:      o.Packet.Destination.String(),
		Outcome: string(o.Outcome), Sentence: o.Message, Path: []string{},
		Differences: o.Differences, NotCompared: o.NotCompared,
	}
	if o.Packet.Hook == rules.Output {
		direction, user = "out", " uid unknown"
	}
	if known {
		line.UID, line.PID, line.Process = &sender.Owner.UID, sender.PID, sender.Name
		user = fmt.Sprintf(" uid %d %s", sender.Owner.UID, cmp.Or(sender.Name, "unknown"))
		if sender.PID != 0 {
			user += fmt.Sprintf("[%d]", sender.PID)
		}
	}
	line.Direction = direction
	if len(o.Differences) > 0 && t.summary.Differences <= mostReproducers {
		path, err := t.reproducer(o)
		if err != nil {
			t.s.warn("no file that reproduces the difference: %v", err)
		}
		line.Reproducer = path
	}
	for _, s := range o.Steps {
		line.Path = append(line.Path, s.Hook.String()+": "+s.String())
	}
	if t.s.json {
		return t.s.printLine(line)
	}
	b := new(strings.Builder)
	fmt.Fprintf(b, "%s %s %s %s > %s%s: %s\n", line.Time, direction, line.Protocol, line.From,
		line.To, user, o.Message)
	if t.p.trace.verbose {
		for _, step := range line.Path {
			fmt.Fprintf(b, "    %s\n", shortened(step))
		}
		if o.NotCompared != "" {
			fmt.Fprintf(b, "    not compared with the model: %s\n", o.NotCompared)
		}
	}
	for _, d := range o.Differences {
		fmt.Fprintf(b, "    %s: please report, with %s\n", d,
			cmp.Or(line.Reproducer, "the ruleset"))
	}
	_, err := io.WriteString(t.s.stdout, b.String())
	return refused(err)
}

// end prints the summary: connections that bypass the proxy first.
func (t *liveTracer) end() error {
	if t.s.json {
		return t.s.printLine(t.summary)
	}
	b := new(strings.Builder)
	fmt.Fprintf(b, "%s, %s, %s from the model\n", count(t.summary.Packets, "packet"),
		count(int(t.summary.Lost), "lost event"),
		count(t.summary.Differences, "difference"))
	sentences := slices.SortedFunc(maps.Keys(t.summary.Sentences), func(x, y string) int {
		past := func(s string) int {
			if strings.HasPrefix(s, "not captured") {
				return 0
			}
			return 1
		}
		return cmp.Or(past(x)-past(y), t.summary.Sentences[y]-t.summary.Sentences[x],
			cmp.Compare(x, y))
	})
	for _, sentence := range sentences {
		fmt.Fprintf(b, "  %5d  %s\n", t.summary.Sentences[sentence], sentence)
	}
	_, err := io.WriteString(t.s.stdout, b.String())
	return refused(err)
}
