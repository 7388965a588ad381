package report

import (
	"fmt"
	"html"
	"math"
	"strings"
)

// A chart contains groups of bars of a quantity.
type chart struct {
	title, unit string
	format      func(float64) string
	groups      []group
}

// A group contains the bars under a heading.
type group struct {
	heading string
	bars    []bar
}

// A bar shows the value of a quantity.
type bar struct {
	name  string
	value float64
	kind  Kind
}

// Dimensions of a chart in pixels. Names are on the left, values to the right of the bars.
const (
	chartWidth, nameWidth, valueWidth = 820, 320, 90
	barHeight, barGap                 = 16, 5
	titleHeight, headingHeight        = 34, 26

	// The baseline of a text is this far below the upper edge of the title, heading or bar.
	titleBaseline, headingBaseline, barBaseline = 20, 17, 12

	// margin is to the left of the title and headings, and between a name and its bar. valueMargin
	// is between a bar and its value.
	margin, valueMargin = 8, 6
)

// style contains colors for light and dark pages.
const style = `<style>
text{font:12px system-ui,sans-serif;fill:#24292f}.title{font-size:14px;font-weight:600}.head{font-weight:600}
.grid{stroke:#d0d7de}.peer{fill:#8c959f}.ours{fill:#1a7f37}.floor{fill:#54aeff}
@media(prefers-color-scheme:dark){text{fill:#e6edf3}.grid{stroke:#30363d}.peer{fill:#6e7681}.ours{fill:#3fb950}.floor{fill:#388bfd}}
</style>`

// logarithmicRatio is the minimum ratio of the largest to the smallest value of a logarithmic axis.
const logarithmicRatio = 20

// svg renders the chart.
func (c chart) svg() string {
	axis := c.axis()
	height := titleHeight + barGap
	for _, g := range c.groups {
		height += headingHeight + len(g.bars)*(barHeight+barGap)
	}
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" `+
		`width="%d" height="%d" role="img">`+"\n", chartWidth, height, chartWidth, height)
	fmt.Fprintf(&b, "<title>%s</title>\n%s\n", html.EscapeString(c.title), style)
	title := c.title + " (" + c.unit
	if axis.logarithmic {
		title += ", logarithmic"
	}
	text(&b, "title", margin, titleBaseline, "start", title+")")
	for _, tick := range axis.ticks {
		x := nameWidth + axis.position(tick)
		fmt.Fprintf(&b, `<line class="grid" x1="%.1f" y1="%d" x2="%.1f" y2="%d"/>`+"\n", x,
			titleHeight, x, height-barGap)
	}
	top := titleHeight
	for _, g := range c.groups {
		text(&b, "head", margin, float64(top+headingBaseline), "start", g.heading)
		top += headingHeight
		for _, bar := range g.bars {
			length := max(axis.position(bar.value), 1)
			baseline := float64(top + barBaseline)
			text(&b, "", nameWidth-margin, baseline, "end", bar.name)
			fmt.Fprintf(&b, `<rect class="%s" x="%d" y="%d" width="%.1f" height="%d"/>`+"\n",
				class(bar.kind), nameWidth, top, length, barHeight)
			text(&b, "", nameWidth+length+valueMargin, baseline, "start", c.format(bar.value))
			top += barHeight + barGap
		}
	}
	b.WriteString("</svg>\n")
	return b.String()
}

// class returns the CSS class of the bars of a kind.
func class(k Kind) string {
	if k == Peer {
		return "peer"
	}
	return string(k)
}

// text writes a text element. x is the position of the start or the end of the text, depending on
// anchor. y is the position of the baseline.
func text(b *strings.Builder, class string, x, y float64, anchor, content string) {
	attribute := ""
	if class != "" {
		attribute = fmt.Sprintf(` class="%s"`, class)
	}
	fmt.Fprintf(b, `<text%s x="%.1f" y="%.1f" text-anchor="%s">%s</text>`+"\n", attribute, x, y,
		anchor, html.EscapeString(content))
}

// An axis maps values to pixels.
type axis struct {
	logarithmic bool
	from, to    float64   // values at the start and at the end of the axis
	ticks       []float64 // values with a grid line
}

// axis returns an axis for all values of the chart.
func (c chart) axis() axis {
	smallest, largest := math.Inf(1), 0.0
	for _, g := range c.groups {
		for _, bar := range g.bars {
			if bar.value > 0 {
				smallest = min(smallest, bar.value)
			}
			largest = max(largest, bar.value)
		}
	}
	if largest == 0 {
		return axis{to: 1}
	}
	if largest/smallest < logarithmicRatio {
		step := math.Pow(10, math.Floor(math.Log10(largest)))
		a := axis{to: largest}
		for tick := step; tick <= largest; tick += step {
			a.ticks = append(a.ticks, tick)
		}
		return a
	}
	// The axis begins at a power of ten that is at least a factor of 10^0.2 below the smallest
	// value, so that the bar of the smallest value is visible.
	const logarithmOfFactor = 0.2
	start := math.Pow(10, math.Floor(math.Log10(smallest)-logarithmOfFactor))
	a := axis{logarithmic: true, from: start, to: largest}
	for tick := a.from * 10; tick <= largest; tick *= 10 {
		a.ticks = append(a.ticks, tick)
	}
	return a
}

// position returns the position of a value on the axis in pixels.
func (a axis) position(value float64) float64 {
	const width = chartWidth - nameWidth - valueWidth
	if !a.logarithmic {
		return value / a.to * width
	}
	if value <= a.from {
		return 0
	}
	return math.Log(value/a.from) / math.Log(a.to/a.from) * width
}
