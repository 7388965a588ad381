package main

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/sluice-mesh/sluice/compat/livetrace"
	"github.com/sluice-mesh/sluice/rules"
)

// A traceSummary is the last line of rules trace -o json.
type traceSummary struct {
	Pod         string `json:"pod,omitempty"` // of --pod
	Packets     int    `json:"packets"`
	Lost        uint32 `json:"lost"`
	Differences int    `json:"differences"`
	Unanswered  int    `json:"unanswered"` // connections without an answer at the end
	// PacketsByMessage contains the number of packets by the message that describes their outcome.
	PacketsByMessage map[string]int `json:"packetsByMessage"`
	// Uncaptured lists the packets that were not captured, in descending order of their number.
	Uncaptured []uncapturedPackets `json:"uncaptured"`
	// UncapturedOthers is the number of packets that were not captured, but are not counted by
	// sender and destination.
	UncapturedOthers int `json:"uncapturedOthers,omitempty"`

	uncapturedCounts map[uncapturedKey]int // the number of packets
}

func (traceSummary) kind() string { return "TraceSummary" }

// uncapturedPackets counts the uncaptured packets from a sender to a destination.
type uncapturedPackets struct {
	Message string  `json:"message"`
	From    string  `json:"from,omitempty"` // the address of a sender outside the namespace
	UID     *uint32 `json:"uid,omitempty"`
	Process string  `json:"process,omitempty"`
	To      string  `json:"to"`
	Packets int     `json:"packets"`
}

// An uncapturedKey identifies uncapturedPackets.
type uncapturedKey struct {
	message, from string
	uid           uint32
	known         bool // the uid is known
	process, to   string
}

// String returns the sender and the destination.
func (u uncapturedPackets) String() string {
	switch {
	case u.From != "":
		return u.From + " > " + u.To
	case u.UID == nil:
		return "uid unknown > " + u.To
	}
	return fmt.Sprintf("uid %d %s > %s", *u.UID, cmp.Or(u.Process, "unknown"), u.To)
}

// maxListedUncaptured limits the entries of [traceSummary.Uncaptured], and maxUncaptured the keys
// whose packets are counted.
const (
	maxListedUncaptured = 10
	maxUncaptured       = 10_000
)

// add counts a packet. known reports whether the sender is known.
func (s *traceSummary) add(o livetrace.Observation, sender livetrace.Process, known bool) {
	s.Packets++
	if s.PacketsByMessage == nil {
		s.PacketsByMessage, s.uncapturedCounts = map[string]int{}, map[uncapturedKey]int{}
	}
	s.PacketsByMessage[o.Message]++
	if len(o.Differences) > 0 {
		s.Differences++
	}
	if o.Outcome != livetrace.NotCaptured {
		return
	}
	k := uncapturedKey{message: o.Message, to: o.Packet.Destination.String()}
	if o.Packet.Hook == rules.Output {
		k.known, k.uid, k.process = known, sender.Owner.UID, sender.Name
	} else {
		k.from = o.Packet.Source.Addr().String()
	}
	if _, counted := s.uncapturedCounts[k]; !counted && len(s.uncapturedCounts) >= maxUncaptured {
		s.UncapturedOthers++
		return
	}
	s.uncapturedCounts[k]++
}

// withUncaptured returns the summary with the list of uncaptured packets.
func (s traceSummary) withUncaptured() traceSummary {
	s.Uncaptured = []uncapturedPackets{}
	for k, packets := range s.uncapturedCounts {
		u := uncapturedPackets{
			Message: k.message, From: k.from, Process: k.process, To: k.to, Packets: packets,
		}
		if k.known {
			u.UID = &k.uid
		}
		s.Uncaptured = append(s.Uncaptured, u)
	}
	slices.SortFunc(s.Uncaptured, func(x, y uncapturedPackets) int {
		return cmp.Or(cmp.Compare(y.Packets, x.Packets), cmp.Compare(x.String(), y.String()),
			cmp.Compare(x.Message, y.Message))
	})
	s.Uncaptured = s.Uncaptured[:min(len(s.Uncaptured), maxListedUncaptured)]
	if s.PacketsByMessage == nil {
		s.PacketsByMessage = map[string]int{}
	}
	return s
}

// String returns the summary as text, with connections that bypass the proxy first.
func (s traceSummary) String() string {
	b := new(strings.Builder)
	fmt.Fprintf(b, "%s, %s, %s from the model\n", count(s.Packets, "packet"),
		count(int(s.Lost), "lost event"), count(s.Differences, "difference"))
	if s.Unanswered > 0 {
		fmt.Fprintf(b, "%s without an answer at the end\n", count(s.Unanswered, "connection"))
	}
	rank := func(message string) int {
		if strings.HasPrefix(strings.TrimPrefix(message, livetrace.UncertainPrefix), "not captured") {
			return 0
		}
		return 1
	}
	packets := s.PacketsByMessage
	messages := slices.SortedFunc(maps.Keys(packets), func(x, y string) int {
		return cmp.Or(cmp.Compare(rank(x), rank(y)), cmp.Compare(packets[y], packets[x]),
			cmp.Compare(x, y))
	})
	for _, message := range messages {
		fmt.Fprintf(b, "  %5d  %s\n", packets[message], rules.Printable(message))
		for _, u := range s.Uncaptured {
			if u.Message == message {
				fmt.Fprintf(b, "         %5d  %s\n", u.Packets, u)
			}
		}
	}
	if s.UncapturedOthers > 0 {
		fmt.Fprintf(b, "not counted by sender and destination, because there are more than %d: "+
			"%s not captured\n", maxUncaptured, count(s.UncapturedOthers, "packet"))
	}
	return b.String()
}

// printSummary prints the summary of the trace.
func (t *liveTracer) printSummary() error {
	if t.answers != nil {
		t.summary.Unanswered = t.answers.Unanswered()
	}
	s := t.summary.withUncaptured()
	s.Pod = t.p.tracedPod()
	if t.s.json {
		return t.s.printLine(s)
	}
	return t.s.printText(s.String())
}
