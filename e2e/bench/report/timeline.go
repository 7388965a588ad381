package report

import (
	"bytes"
	"fmt"
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// A timeline is a chart of a quantity over time.
type timeline struct {
	title           string
	seconds, values []float64
}

// Number of charts side by side, and dimensions of a chart.
const (
	timelineColumns               = 2
	timelineWidth, timelineHeight = 14 * vg.Centimeter, 5 * vg.Centimeter
)

// plotTimelines draws the charts in rows of timelineColumns, and returns them as SVG.
func plotTimelines(lines []timeline) ([]byte, error) {
	rows := (len(lines) + timelineColumns - 1) / timelineColumns
	canvas := vgsvg.New(timelineColumns*timelineWidth, vg.Length(rows)*timelineHeight)
	tiles := draw.Tiles{
		Rows: rows, Cols: timelineColumns, PadX: vg.Centimeter, PadY: vg.Millimeter,
	}
	for i, chart := range lines {
		p := plot.New()
		p.Title.Text, p.X.Label.Text = chart.title, "minutes"
		points := make(plotter.XYs, len(chart.values))
		for j, v := range chart.values {
			points[j] = plotter.XY{X: chart.seconds[j] / 60, Y: v}
		}
		line, err := plotter.NewLine(points)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", chart.title, err)
		}
		p.Add(plotter.NewGrid(), line)
		p.Y.Min, p.Y.Max = 0, 1.1*max(slices.Max(chart.values), 1)
		p.Draw(tiles.At(draw.New(canvas), i%timelineColumns, i/timelineColumns))
	}
	var b bytes.Buffer
	_, err := canvas.WriteTo(&b)
	return b.Bytes(), err
}
