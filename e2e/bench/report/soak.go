package report

import (
	"fmt"
	"slices"
	"time"
)

// Soak is the result of a run of the node agent while sandboxes are created and removed.
type Soak struct {
	Machine  Machine       `json:"machine"`
	Duration time.Duration `json:"duration"`
	// Sandboxes is the number of created sandboxes. Live is the number of sandboxes that exist at
	// the same time.
	Sandboxes int `json:"sandboxes"`
	Live      int `json:"live"`
	// Connections is the number of connections in live sandboxes. All of them were captured.
	Connections int `json:"connections"`
	// Repairs is the distribution of the times until removed rules were restored, in seconds.
	Repairs Summary `json:"repairs"`
	// LongestRepair is the maximum of these times, in seconds.
	LongestRepair float64 `json:"longestRepair"`
	// Series are the sampled quantities of the agent.
	Series []Series `json:"series"`
}

// A Series contains the samples of a quantity over the time of a run.
type Series struct {
	Name string `json:"name"`
	Unit string `json:"unit,omitempty"`
	// Growth is the allowed growth of the median between the second and the last quarter of the
	// samples.
	Growth float64 `json:"growth"`
	// Seconds are the times of the samples, since the start of the run. Values are the samples.
	Seconds []float64 `json:"seconds"`
	Values  []float64 `json:"values"`
}

// Quarters returns the medians of the second and the last quarter of the samples. The first quarter
// is ignored, because the agent fills its caches in that time.
func (s Series) Quarters() (second, last float64) {
	n := len(s.Values)
	return Summarize(s.Values[n/4 : n/2]).Median, Summarize(s.Values[n-n/4:]).Median
}

// IsFlat reports whether the median has grown by at most Growth.
func (s Series) IsFlat() bool {
	second, last := s.Quarters()
	return last-second <= s.Growth
}

// values returns the formatted medians of the second and the last quarter, the maximum, and the
// allowed growth.
func (s Series) values() []string {
	second, last := s.Quarters()
	return []string{
		s.format(second), s.format(last), s.format(slices.Max(s.Values)), s.format(s.Growth),
	}
}

// format formats a value of the series with its unit.
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
