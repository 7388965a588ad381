package report

import (
	"fmt"
	"strings"
)

const introduction = `# Sluice compared with other programs

This page is generated from results.json by ` + "`make bench-peers`" + `, or by ` + "`make bench`" + ` with fewer rounds. In each round, all candidates of a row perform the same task in turn,
each in a new network namespace, and the benchmark checks that the task was done. Each round starts with a different candidate. Values
are medians, with the quartiles in parentheses. Memory and executed programs are counted in separate runs under ptrace. Bold names are
variants of Sluice. Italic names are lower bounds, the minimum cost of the task.

`

// Markdown renders the results as a page, which refers to the plots by the names of [Plots].
func Markdown(r Results) []byte {
	var b strings.Builder
	b.WriteString(introduction)
	b.WriteString(machine(r))
	b.WriteString(goals(r.Rows))
	for i := range r.Rows {
		row := &r.Rows[i]
		if i == 0 || r.Rows[i-1].Topic != row.Topic {
			fmt.Fprintf(&b, "\n## %s\n", row.Topic)
			if p, ok := plotOf(r, row.Topic); ok {
				fmt.Fprintf(&b, "\n![%s](%s)\n", p.chart.title, p.name)
			}
		}
		fmt.Fprintf(&b, "\n### %s\n\n", row.Name)
		b.WriteString(Table(*row))
	}
	b.WriteString(extrapolation(r))
	b.WriteString(soak(r.Soak))
	b.WriteString(atScale(r.Scale))
	return []byte(b.String())
}

func machine(r Results) string {
	var b strings.Builder
	m := r.Machine
	fmt.Fprintf(&b,
		"Machine: %s, %d cores, %s of memory, Linux %s, %s. %d rounds unless a row says otherwise.\n\n",
		m.CPU, m.Cores, size(float64(m.Memory)), m.Kernel, m.Go, r.Rounds)
	b.WriteString("| program | version | size |\n|---|---|---:|\n")
	for _, p := range r.Programs {
		text := ""
		if p.Size > 0 {
			text = size(float64(p.Size))
		}
		fmt.Fprintf(&b, "| %s | %s | %s |\n", p.Name, p.Version, text)
	}
	return b.String()
}

// goals returns the table of the goals.
func goals(rows []Row) string {
	var b strings.Builder
	b.WriteString("\n## Goals\n\n| what | Sluice | compared with | ratio | goal | |\n|---|---|---|---:|---:|---|\n")
	for i := range rows {
		row := &rows[i]
		for _, g := range row.Goals {
			v, ok := g.check(row)
			if !ok {
				continue
			}
			own := g.Quantity.format(v.value.Median)
			if g.Quantity == Rate {
				own += " per second"
			}
			own += " " + g.Of
			beside, ratio := "", ""
			if v.against != nil {
				beside = g.Quantity.format(v.against.Values[g.Quantity].Median) + " " +
					v.against.Name
				ratio = v.got
			}
			verdict := "met"
			if !v.isMet {
				verdict = "**missed**"
			}
			fmt.Fprintf(&b, "| %s: %s: %s | %s | %s | %s | %s | %s |\n",
				row.Topic, row.Name, g.Quantity.title(), own, beside, ratio, v.expected, verdict)
		}
	}
	return b.String()
}

// Table renders a row: its entries with the ratio of each to the first entry of Sluice, its goals,
// and the omitted candidates.
func Table(row Row) string {
	var b strings.Builder
	if len(row.Entries) > 0 {
		entries(&b, row)
	}
	for _, reason := range row.LeftOut {
		fmt.Fprintf(&b, "\nOmitted: %s.\n",
			strings.TrimPrefix(reason.Name+": "+abridged(oneLine(reason.Text)), ": "))
	}
	for _, g := range row.Goals {
		if v, ok := g.check(&row); ok {
			b.WriteString("\n" + g.sentence(v) + "\n")
		}
	}
	if row.Note != "" {
		fmt.Fprintf(&b, "\n%s\n", row.Note)
	}
	return b.String()
}

// entries writes the table of the row's entries.
func entries(b *strings.Builder, row Row) {
	columns := row.columns()
	head, rule := "| |", "|---|"
	for _, c := range columns {
		head += " " + c.title() + " |"
		rule += "---:|"
		if c.compared() {
			head += " ratio |"
			rule += "---:|"
		}
	}
	fmt.Fprintf(b, "%s\n%s\n", head, rule)
	first := row.first()
	for i := range row.Entries {
		e := &row.Entries[i]
		line := "| " + e.label() + " |"
		for _, c := range columns {
			line += " " + c.cell(e) + " |"
			if c.compared() {
				line += " " + c.times(e, first) + " |"
			}
		}
		b.WriteString(line + "\n")
	}
	if row.Rounds > 0 {
		fmt.Fprintf(b, "\n%d rounds.\n", row.Rounds)
	}
}

// columns returns the quantities of the entries, in the order of [quantities].
func (r *Row) columns() []Quantity {
	var columns []Quantity
	for _, q := range quantities {
		for _, e := range r.Entries {
			if _, ok := e.Values[q.Quantity]; ok {
				columns = append(columns, q.Quantity)
				break
			}
		}
	}
	return columns
}

// first returns the reference entry: the first one of Sluice.
func (r *Row) first() *Entry {
	for i := range r.Entries {
		if r.Entries[i].Kind == Sluice {
			return &r.Entries[i]
		}
	}
	return nil
}

// label returns the name in the table.
func (e *Entry) label() string {
	switch e.Kind {
	case Sluice:
		return "**" + e.Name + "**"
	case Floor:
		return "*" + e.Name + "*"
	}
	return e.Name
}

// compared reports whether the quantity has a column of ratios.
func (q Quantity) compared() bool {
	for _, known := range quantities {
		if known.Quantity == q {
			return known.ratio
		}
	}
	return false
}

// cell returns the value with its spread.
func (q Quantity) cell(e *Entry) string {
	s, ok := e.Values[q]
	switch {
	case !ok:
		return ""
	case s.FirstQuartile == s.ThirdQuartile:
		return q.format(s.Median)
	}
	return fmt.Sprintf("%s (%s – %s)", q.format(s.Median), q.format(s.FirstQuartile), q.format(s.ThirdQuartile))
}

// times returns the ratio to the first entry.
func (q Quantity) times(e, first *Entry) string {
	if first == nil || first.Values[q].Median == 0 || e.Values[q].Median == 0 {
		return ""
	}
	return threeDigits(e.Values[q].Median/first.Values[q].Median) + "×"
}

// sentence describes the goal and the result.
func (g Goal) sentence(v verdict) string {
	end := "met."
	if !v.isMet {
		end = "**missed**."
	}
	if v.against == nil {
		return fmt.Sprintf("Goal: %s of %s %s: %s, %s", g.Quantity.title(), g.Of, v.expected, v.got,
			end)
	}
	return fmt.Sprintf("Goal: %s of %s %s of %s: %s, %s", g.Quantity.title(), g.Of, v.expected,
		v.against.Name, v.got, end)
}

// oneLine returns the text on one line.
func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }

// maxReason is the maximum length of a reason: some programs log all their parameters when they
// fail.
const maxReason = 300

// abridged returns the begin and the end of a long text, which contain the failed operation and the
// cause.
func abridged(text string) string {
	if len(text) <= maxReason {
		return text
	}
	return strings.ToValidUTF8(text[:maxReason/2], "") + " … " +
		strings.ToValidUTF8(text[len(text)-maxReason/2:], "")
}
