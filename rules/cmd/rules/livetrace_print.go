package main

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/sluice-mesh/sluice/compat/livetrace"
	"github.com/sluice-mesh/sluice/rules"
)

// A tracedPacket is a line of rules trace -o json.
type tracedPacket struct {
	Pod         string   `json:"pod,omitempty"` // of --pod
	Time        string   `json:"time"`
	Packet      string   `json:"packet"`
	Direction   string   `json:"direction"`
	Protocol    string   `json:"protocol"`
	From        string   `json:"from"`
	To          string   `json:"to"` // the original destination
	UID         *uint32  `json:"uid,omitempty"`
	PID         int      `json:"pid,omitempty"`
	Process     string   `json:"process,omitempty"`
	Container   string   `json:"container,omitempty"`
	Outcome     string   `json:"outcome"`
	Uncertain   bool     `json:"uncertain,omitempty"` // a rule may have forged the outcome
	Message     string   `json:"message"`
	Path        []string `json:"path"`
	Listener    string   `json:"listener,omitempty"` // address, or "none"
	Differences []string `json:"differences,omitempty"`
	NotCompared string   `json:"notCompared,omitempty"`
	Reproducer  string   `json:"reproducer,omitempty"` // file with the ruleset and the packet
	// ReproducerText is the content of the file if it cannot be created, as in the container of a
	// node agent.
	ReproducerText string `json:"reproducerText,omitempty"`
}

func (tracedPacket) kind() string { return "TracedPacket" }

// tracedPod returns the pod of --pod in JSON output, or "". With kubectl sluice, the lines of
// several pods are in one output.
func (p *parameters) tracedPod() string {
	if p.pod == (podName{}) {
		return ""
	}
	return p.pod.String()
}

// maxReproducers limits the number of files that a trace writes.
const maxReproducers = 10

// maxReproducerText limits the size of tracedPacket.ReproducerText in bytes.
const maxReproducerText = 1 << 18

// reproducer returns the information that reproduces differences: the packet, the differences, the
// path in the kernel, and the ruleset in nft's syntax.
func (t *liveTracer) reproducer(o livetrace.Observation) string {
	b := new(strings.Builder)
	fmt.Fprintf(b, "# rules explain --live '%s'\n", o.Packet)
	for _, d := range o.Differences {
		fmt.Fprintf(b, "# %s\n", rules.Printable(d))
	}
	for _, s := range o.Steps {
		fmt.Fprintf(b, "# kernel: %s: %s\n", s.Hook, rules.Printable(s.String()))
	}
	b.WriteString(t.ruleset.String())
	return b.String()
}

// writeReproducer writes the text to a new file, and returns the file's path.
func writeReproducer(text string) (string, error) {
	file, err := os.CreateTemp("", "rules-trace-*.nft")
	if err != nil {
		return "", err
	}
	_, err = file.WriteString(text)
	return file.Name(), errors.Join(err, file.Close())
}

// print prints a packet. known reports whether the sender is known. The name of the sender is made
// printable, because its process chooses it.
func (t *liveTracer) print(o livetrace.Observation, sender livetrace.Process, known bool) error {
	sender.Name = rules.Printable(sender.Name)
	t.summary.add(o, sender, known)
	direction, user := "in", ""
	line := tracedPacket{
		Pod: t.p.tracedPod(), Time: o.Time.UTC().Format(timeFormat), Packet: o.Packet.String(),
		Protocol: o.Packet.Protocol.String(), From: o.Packet.Source.String(),
		To:      o.Packet.Destination.String(),
		Outcome: string(o.Outcome), Uncertain: o.Uncertain, Message: o.Message,
		Path:        append([]string{}, o.Path()...),
		Differences: o.Differences, NotCompared: o.NotCompared,
	}
	if o.Packet.Hook == rules.Output {
		direction, user = "out", " uid unknown"
	}
	if known {
		line.UID, line.PID, line.Process = &sender.Owner.UID, sender.PID, sender.Name
		line.Container = sender.Container
		user = fmt.Sprintf(" uid %d %s", sender.Owner.UID, cmp.Or(sender.Name, "unknown"))
		if sender.PID != 0 {
			user += fmt.Sprintf("[%d]", sender.PID)
		}
	}
	line.Direction = direction
	if len(o.Differences) > 0 && t.summary.Differences <= maxReproducers {
		text := t.reproducer(o)
		path, err := writeReproducer(text)
		switch {
		case err == nil:
			line.Reproducer = path
		case len(text) <= maxReproducerText:
			line.ReproducerText = text
		default:
			t.s.warn("no file that reproduces the difference: %v", err)
		}
	}

	if o.LocalPort != 0 && (t.p.trace.verbose || t.s.json) {
		line.Listener = "none"
		if at, ok := t.namespace.Listener(o.Packet.Protocol, o.LocalPort); ok {
			line.Listener = at.String()
		}
	}
	if t.s.json {
		return t.s.printLine(line)
	}
	return t.s.printText(t.packetText(line, o, user))
}

// packetText returns the text of a traced packet.
func (t *liveTracer) packetText(line tracedPacket, o livetrace.Observation, user string) string {
	b := new(strings.Builder)
	fmt.Fprintf(b, "%s %s %s %s > %s%s: %s\n", line.Time, line.Direction, line.Protocol, line.From,
		line.To, user, rules.Printable(o.Message))
	if t.p.trace.verbose {
		for _, step := range line.Path {
			fmt.Fprintf(b, "    %s\n", rules.Printable(shorten(step)))
		}
		switch line.Listener {
		case "":
		case "none":
			fmt.Fprintf(b, "    no listener on port %d\n", o.LocalPort)
		default:
			fmt.Fprintf(b, "    listener %s\n", line.Listener)
		}
		if line.Container != "" {
			fmt.Fprintf(b, "    container %s\n", line.Container)
		}
		if o.NotCompared != "" {
			fmt.Fprintf(b, "    not compared with the model: %s\n",
				rules.Printable(o.NotCompared))
		}
	}
	for _, d := range o.Differences {
		fmt.Fprintf(b, "    %s: please report, with %s\n", rules.Printable(d),
			cmp.Or(line.Reproducer, "the ruleset"))
	}
	for text := range strings.Lines(line.ReproducerText) {
		b.WriteString("    " + text)
	}
	return b.String()
}
