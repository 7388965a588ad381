package report

import (
	"slices"
	"strings"
)

// A Plot is an image on the page.
type Plot struct {
	// Topic is the topic whose rows it shows. Name is the name of the file.
	Topic, Name string
	SVG         []byte
}

// Plots renders a plot for each topic whose rows have values to plot, with a group of bars for each
// row.
func Plots(r Results) []Plot {
	var charts []chart
	for _, row := range r.Rows {
		g := group{heading: row.Name}
		for _, e := range row.Entries {
			if s, ok := e.Values[row.Plotted]; ok {
				g.bars = append(g.bars, bar{e.Name, s.Median, e.Kind})
			}
		}
		if len(g.bars) == 0 {
			continue
		}
		i := slices.IndexFunc(charts, func(c chart) bool { return c.title == row.Topic })
		if i < 0 {
			i, charts = len(charts), append(charts, chart{title: row.Topic})
		}
		c := &charts[i]
		c.unit, c.format = row.Plotted.title(), row.Plotted.format
		c.groups = append(c.groups, g)
	}
	plots := make([]Plot, len(charts))
	for i, c := range charts {
		plots[i] = Plot{c.title, fileName(c.title), []byte(c.svg())}
	}
	return plots
}

// fileName returns the name of a topic's plot: the words of the topic in lower case, separated by
// hyphens.
func fileName(topic string) string {
	separated := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z' || r >= '0' && r <= '9':
			return r
		case r == '\'':
			return -1 // removed
		default:
			return ' '
		}
	}, strings.ToLower(topic))
	return strings.Join(strings.Fields(separated), "-") + ".svg"
}
