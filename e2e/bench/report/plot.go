package report

import "strings"

// A Plot is an image on the page.
type Plot struct {
	// Name is the name of the file.
	Name string
	SVG  []byte
}

// Plots renders a plot for each topic whose rows have values to plot.
func Plots(r Results) []Plot {
	var plots []Plot
	seen := map[string]bool{}
	for _, row := range r.Rows {
		if seen[row.Topic] {
			continue
		}
		seen[row.Topic] = true
		if p, ok := plotOf(r, row.Topic); ok {
			plots = append(plots, Plot{p.name, []byte(p.chart.svg())})
		}
	}
	return plots
}

// A topicPlot is the chart of a topic and the name of its file.
type topicPlot struct {
	name  string
	chart chart
}

// plotOf returns the plot of a topic, which has a group of bars for each row. It returns false if
// no row has values to plot.
func plotOf(r Results, topic string) (topicPlot, bool) {
	var c chart
	for _, row := range r.Rows {
		if row.Topic != topic || row.Plotted == "" {
			continue
		}
		g := group{heading: row.Name}
		for _, e := range row.Entries {
			if s, ok := e.Values[row.Plotted]; ok {
				g.bars = append(g.bars, bar{e.Name, s.Median, e.Kind})
			}
		}
		if len(g.bars) == 0 {
			continue
		}
		c.title, c.unit, c.format = topic, row.Plotted.title(), row.Plotted.format
		c.groups = append(c.groups, g)
	}
	return topicPlot{fileName(topic), c}, len(c.groups) > 0
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
