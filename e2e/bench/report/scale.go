package report

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Scale is what the node agents of a simulated cluster cost the API server.
type Scale struct {
	Machine Machine `json:"machine"`
	Nodes   int     `json:"nodes"`
	// Pods is the number of pods of a node.
	Pods   int     `json:"pods"`
	Phases []Phase `json:"phases"`
}

// A Phase is a part of the simulation.
type Phase struct {
	Name string `json:"name"`
	// What says what happens in it.
	What    string  `json:"what"`
	Seconds float64 `json:"seconds"`
	// Requests are the numbers of requests by verb and resource, PerSecond those in each second.
	Requests  map[string]int `json:"requests"`
	PerSecond []int          `json:"perSecond"`
	// Connections is the number of attempts to connect, PeakConnections the most in a second.
	Connections     int `json:"connections"`
	PeakConnections int `json:"peakConnections"`
	// Received and Sent are bytes of the API server, TLS included.
	Received int64 `json:"received"`
	Sent     int64 `json:"sent"`
}

// Total returns the number of requests.
func (p *Phase) Total() int {
	total := 0
	for n := range maps.Values(p.Requests) {
		total += n
	}
	return total
}

// Peak returns the number of requests in the busiest second.
func (p *Phase) Peak() int { return slices.Max(p.PerSecond) }

const scalePlot = "scale.svg"

// atScale renders the section of the page.
func atScale(s *Scale) string {
	if s == nil {
		return ""
	}
	var b strings.Builder
	fmt.Fprintf(&b, "\n## What the agents cost the API server\n\n![Requests per second](%s)\n\n",
		scalePlot)
	fmt.Fprintf(&b,
		"Written by `make scale`: the requests of %d node agents, each with %d injected pods on its node, run in virtual time against one "+
			"stand-in for the API server, over HTTP/2 and TLS. All of them start at the same instant, and lose the API server at the same instant. "+
			"The stand-in answers at once, so that the busiest second shows how the agents spread their requests, and nothing else. In rest an "+
			"agent has two watches.\n\n", s.Nodes, s.Pods)
	b.WriteString("| phase | duration | requests | per second | in the busiest second | connections | in the busiest second | received | sent |\n" +
		"|---|---:|---:|---:|---:|---:|---:|---:|---:|\n")
	for i := range s.Phases {
		p := &s.Phases[i]
		fmt.Fprintf(&b, "| %s: %s | %.0f s | %d | %s | %d | %d | %d | %s | %s |\n", p.Name, p.What,
			p.Seconds, p.Total(), three(float64(p.Total())/p.Seconds), p.Peak(), p.Connections,
			p.PeakConnections, size(float64(p.Received)), size(float64(p.Sent)))
	}
	b.WriteString("\n| requests |")
	kinds := map[string]bool{}
	for _, p := range s.Phases {
		fmt.Fprintf(&b, " %s |", p.Name)
		for kind := range p.Requests {
			kinds[kind] = true
		}
	}
	fmt.Fprintf(&b, "\n|---|%s\n", strings.Repeat("---:|", len(s.Phases)))
	for _, kind := range slices.Sorted(maps.Keys(kinds)) {
		fmt.Fprintf(&b, "| %s |", kind)
		for _, p := range s.Phases {
			fmt.Fprintf(&b, " %d |", p.Requests[kind])
		}
		b.WriteString("\n")
	}
	return b.String()
}

// plotScale draws the requests per second of each phase that has any after its first second.
func plotScale(s *Scale) ([]byte, error) {
	var lines []timeline
	for _, p := range s.Phases {
		one := timeline{title: p.Name + ", requests per second"}
		for i, n := range p.PerSecond {
			one.seconds, one.values = append(one.seconds, float64(i)), append(one.values, float64(n))
		}
		if slices.Max(p.PerSecond[1:]) > 0 {
			lines = append(lines, one)
		}
	}
	return plotTimelines(lines)
}
