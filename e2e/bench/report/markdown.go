package report

import (
	_ "embed" // for the templates
	"fmt"
	"slices"
	"strings"
	"text/template"
)

//go:embed RESULTS.md.tmpl
var templateText string

// templates are the templates of the page and of its parts.
var templates = template.Must(template.New("").Funcs(template.FuncMap{
	"size": size[int64], "duration": duration, "thousands": thousands, "threeDigits": threeDigits,
	"abridged": abridged, "title": Quantity.title, "hasRatios": Quantity.hasRatios,
	"cell": Quantity.cell, "ratio": Quantity.ratio, "label": Entry.label,
	"columns": (*Row).columns, "verdicts": (*Row).verdicts, "values": Series.values,
	"medianOf": func(e *Entry, q Quantity) string { return q.format(e.Values[q].Median) },
}).Parse(templateText))

// render executes a template.
func render(name string, data any) string {
	var b strings.Builder
	if err := templates.ExecuteTemplate(&b, name, data); err != nil {
		panic(err) // cannot happen: the templates match the types of this package
	}
	return b.String()
}

// Markdown renders the results as a page, which refers to the plots by their file names; see
// [Plots].
func Markdown(r Results) []byte {
	plots := map[string]string{} // file names by topic
	for _, p := range Plots(r) {
		plots[p.Topic] = p.Name
	}
	return []byte(render("page", struct {
		Results
		Plots         map[string]string
		Extrapolation *extrapolation
	}{r, plots, extrapolate(r)}))
}

// Table renders a row: its entries with the ratio of each to the first entry of Sluice, its goals,
// and the omitted candidates.
func Table(row Row) string { return render("row", &row) }

// columns returns the quantities of the entries, in the order of [quantities].
func (r *Row) columns() []Quantity {
	var columns []Quantity
	for _, q := range quantities {
		if slices.ContainsFunc(r.Entries, func(e Entry) bool {
			_, isMeasured := e.Values[q.Quantity]
			return isMeasured
		}) {
			columns = append(columns, q.Quantity)
		}
	}
	return columns
}

// label returns the entry's name as the table prints it.
func (e Entry) label() string {
	switch e.Kind {
	case Sluice:
		return "**" + e.Name + "**"
	case Floor:
		return "*" + e.Name + "*"
	}
	return e.Name
}

// hasRatios reports whether the quantity has a column of ratios.
func (q Quantity) hasRatios() bool { return q.properties().hasRatios }

// cell returns the entry's median, and the quartiles unless they are equal. It is empty if the
// entry has no value.
func (q Quantity) cell(e Entry) string {
	s, ok := e.Values[q]
	switch {
	case !ok:
		return ""
	case s.FirstQuartile == s.ThirdQuartile:
		return q.format(s.Median)
	}
	return fmt.Sprintf("%s (%s – %s)", q.format(s.Median), q.format(s.FirstQuartile),
		q.format(s.ThirdQuartile))
}

// ratio returns the formatted ratio of an entry to the row's first entry of Sluice. It is empty if
// one of them has no value or the value 0.
func (q Quantity) ratio(e Entry, r *Row) string {
	i := slices.IndexFunc(r.Entries, func(e Entry) bool { return e.Kind == Sluice })
	if i < 0 || r.Entries[i].Values[q].Median == 0 || e.Values[q].Median == 0 {
		return ""
	}
	return threeDigits(e.Values[q].Median/r.Entries[i].Values[q].Median) + "×"
}

// maxReason is the maximum length in bytes of the reason for omitting a candidate. It is needed
// because some programs log all their parameters when they fail.
const maxReason = 300

// abridged returns the text on one line, and without its middle if it is longer than maxReason. The
// start names the failed operation, and the end names the cause.
func abridged(text string) string {
	text = strings.Join(strings.Fields(text), " ")
	if len(text) <= maxReason {
		return text
	}
	return strings.ToValidUTF8(text[:maxReason/2], "") + " … " +
		strings.ToValidUTF8(text[len(text)-maxReason/2:], "")
}
