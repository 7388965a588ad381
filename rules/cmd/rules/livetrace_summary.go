package main

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/sluice-mesh/sluice/compat/livetrace"
	"github.com/sluice-mesh/sluice/rules"
)

// A traceSummary is the last line of rules trace -o json.
type traceSummary struct {
	Packets     int    `json:"packets"`
	Lost        uint32 `json:"lost"`
	Differences int    `json:"differences"`
	Unanswered  int    `json:"unanswered"` // connections without an answer at the end
	// Sentences contains the number of packets by the sentence that describes their outcome.
	Sentences map[string]int `json:"sentences"`
	Talkers   []traceTalker  `json:"talkers"` // in descending order of Packets

	byTalker map[talkerKey]int // the number of packets by talker
}

func (traceSummary) kind() string { return "TraceSummary" }

// A traceTalker is a sender of packets that were not captured, and a destination.
type traceTalker struct {
	Sentence string  `json:"sentence"`
	From     string  `json:"from,omitempty"` // the address of a sender outside the namespace
	UID      *uint32 `json:"uid,omitempty"`
	Process  string  `json:"process,omitempty"`
	To       string  `json:"to"`
	Packets  int     `json:"packets"`
}

// A talkerKey identifies a traceTalker.
type talkerKey struct {
	sentence, from string
	uid            uint32
	known          bool // the uid is known
	process, to    string
}

// String returns the sender and the destination.
func (t traceTalker) String() string {
	switch {
	case t.From != "":
		return t.From + " > " + t.To
	case t.UID == nil:
		return "uid unknown > " + t.To
	}
	return fmt.Sprintf("uid %d %s > %s", *t.UID, cmp.Or(t.Process, "unknown"), t.To)
}

// maxListedTalkers limits the talkers that a summary lists, and maxTalkers the talkers that are
// counted.
const (
	maxListedTalkers = 10
	maxTalkers       = 10_000
)

// add counts a packet. known reports whether the sender is known.
func (s *traceSummary) add(o livetrace.Observation, sender livetrace.Process, known bool) {
	s.Packets++
	if s.Sentences == nil {
		s.Sentences, s.byTalker = map[string]int{}, map[talkerKey]int{}
	}
	s.Sentences[o.Message]++
	if len(o.Differences) > 0 {
		s.Differences++
	}
	if o.Outcome != livetrace.NotCaptured {
		return
	}
	k := talkerKey{sentence: o.Message, to: o.Packet.Destination.String()}
	if o.Packet.Hook == rules.Output {
		k.known, k.uid, k.process = known, sender.Owner.UID, sender.Name
	} else {
		k.from = o.Packet.Source.Addr().String()
	}
	if _, counted := s.byTalker[k]; counted || len(s.byTalker) < maxTalkers {
		s.byTalker[k]++
	}
}

// withTalkers returns the summary with the list of talkers.
func (s traceSummary) withTalkers() traceSummary {
	s.Talkers = []traceTalker{}
	for k, packets := range s.byTalker {
		t := traceTalker{
			Sentence: k.sentence, From: k.from, Process: k.process, To: k.to, Packets: packets,
		}
		if k.known {
			t.UID = &k.uid
		}
		s.Talkers = append(s.Talkers, t)
	}
	slices.SortFunc(s.Talkers, func(x, y traceTalker) int {
		return cmp.Or(cmp.Compare(y.Packets, x.Packets), cmp.Compare(x.String(), y.String()),
			cmp.Compare(x.Sentence, y.Sentence))
	})
	s.Talkers = s.Talkers[:min(len(s.Talkers), maxListedTalkers)]
	if s.Sentences == nil {
		s.Sentences = map[string]int{}
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
	rank := func(sentence string) int {
		if strings.HasPrefix(sentence, "not captured") {
			return 0
		}
		return 1
	}
	sentences := slices.SortedFunc(maps.Keys(s.Sentences), func(x, y string) int {
		return cmp.Or(cmp.Compare(rank(x), rank(y)), cmp.Compare(s.Sentences[y], s.Sentences[x]),
			cmp.Compare(x, y))
	})
	for _, sentence := range sentences {
		fmt.Fprintf(b, "  %5d  %s\n", s.Sentences[sentence], sentence)
		for _, t := range s.Talkers {
			if t.Sentence == sentence {
				fmt.Fprintf(b, "         %5d  %s\n", t.Packets, t)
			}
		}
	}
	return b.String()
}

// printSummary prints the summary of the trace.
func (t *liveTracer) printSummary() error {
	s := t.summary.withTalkers()
	if t.s.json {
		return t.s.printLine(s)
	}
	_, err := io.WriteString(t.s.stdout, s.String())
	return systemError(err)
}
