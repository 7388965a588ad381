package report

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Soak is the result of a run of the node agent while sandboxes are created and removed.
type Soak struct {
	Machine  Machine       `json:"machine"`
	Duration time.Duration `json:"duration"`
	// Sandboxes is their total number, and Live the number at a time.
	Sandboxes int `json:"sandboxes"`
	Live      int `json:"live"`
	// Connections is the number of connections in live sandboxes, all of which were captured.
	Connections int `json:"connections"`
	// Repairs are the times in seconds until removed rules were restored.
	Repairs Summary `json:"repairs"`
	// LongestRepair is the maximum of these times, in seconds.
	LongestRepair float64 `json:"longestRepair"`
	// Series are the sampled quantities of the agent.
	Series []Series `json:"series"`
}

// A Series is a quantity over the time of a run.
type Series struct {
	Name string `json:"name"`
	Unit string `json:"unit,omitempty"`
	// Growth is the allowed growth of the median from the second to the last quarter.
	Growth float64 `json:"growth"`
	// Seconds are the times of the samples since the start of the run, Values the samples.
	Seconds []float64 `json:"seconds"`
	Values  []float64 `json:"values"`
}

// Quarters returns the medians of the second and the last quarter of the samples. Caches fill in
// the first one.
func (s Series) Quarters() (second, last float64) {
	n := len(s.Values)
	return Summarise(s.Values[n/4 : n/2]).Median, Summarise(s.Values[n-n/4:]).Median
}

// Flat reports whether the quantity has grown at most by Growth.
func (s Series) Flat() bool {
	second, last := s.Quarters()
	return last-second <= s.Growth
}

const soakPlot = "soak.svg"

// soak renders the section of the page.
func soak(s *Soak) string {
	if s == nil {
		return ""
	}
	var b strings.Builder
	fmt.Fprintf(&b,
		"\n## Sandboxes that come and go\n\n![What the agent has while sandboxes come and go](%s)\n\n", soakPlot)
	fmt.Fprintf(&b,
		"Written by `make soak`. %s, %d cores, Linux %s: %d sandboxes came and went in %s, %d at a time, by CNI calls of the "+
			"installed plugin. %d connections were opened in them meanwhile, and all were captured. Rules were removed %d times, and were back "+
			"after %s in the median and %s at most.\n\n",
		s.Machine.CPU, s.Machine.Cores, s.Machine.Kernel, s.Sandboxes, s.Duration, s.Live,
		s.Connections,
		s.Repairs.Samples, Wall.format(s.Repairs.Median), Wall.format(s.LongestRepair))
	b.WriteString("| of the agent | second quarter | last quarter | largest | may grow by | |\n|---|---:|---:|---:|---:|---|\n")
	for _, one := range s.Series {
		second, last := one.Quarters()
		verdict := "flat"
		if !one.Flat() {
			verdict = "**grows**"
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s | %s |\n", one.Name,
			one.format(second), one.format(last), one.format(slices.Max(one.Values)),
			one.format(one.Growth), verdict)
	}
	return b.String()
}

func (s Series) format(v float64) string {
	if s.Unit == "" {
		return fmt.Sprintf("%.0f", v)
	}
	return fmt.Sprintf("%.1f %s", v, s.Unit)
}

// plotSoak draws a chart for each series.
func plotSoak(s *Soak) ([]byte, error) {
	var lines []timeline
	for _, series := range s.Series {
		title := series.Name
		if series.Unit != "" {
			title += ", " + series.Unit
		}
		lines = append(lines, timeline{title, series.Seconds, series.Values})
	}
	return plotTimelines(lines)
}
