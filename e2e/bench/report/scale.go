package report

import (
	"maps"
	"slices"
)

// Scale is the load of the node agents of a simulated cluster on the API server.
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
	// Description describes the phase.
	Description string  `json:"what"`
	Seconds     float64 `json:"seconds"`
	// Requests counts the requests by their verb and resource. PerSecond counts all requests of
	// each second.
	Requests  map[string]int `json:"requests"`
	PerSecond []int          `json:"perSecond"`
	// Connections is the number of attempts to connect; PeakConnections is the maximum in one
	// second.
	Connections     int `json:"connections"`
	PeakConnections int `json:"peakConnections"`
	// Received and Sent are the bytes that the API server received and sent, including TLS.
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

// Average returns the average number of requests per second.
func (p *Phase) Average() float64 { return float64(p.Total()) / p.Seconds }

// Kinds returns the verbs and resources of all requests, sorted.
func (s *Scale) Kinds() []string {
	requests := map[string]int{}
	for _, p := range s.Phases {
		maps.Copy(requests, p.Requests)
	}
	return slices.Sorted(maps.Keys(requests))
}

// plotScale draws the requests per second of each phase that has requests after its first second.
func plotScale(s *Scale) ([]byte, error) {
	var lines []timeline
	for _, p := range s.Phases {
		plot := timeline{title: p.Name + ", requests per second"}
		for i, n := range p.PerSecond {
			plot.seconds = append(plot.seconds, float64(i))
			plot.values = append(plot.values, float64(n))
		}
		if slices.Max(p.PerSecond[1:]) > 0 {
			lines = append(lines, plot)
		}
	}
	return plotTimelines(lines)
}
