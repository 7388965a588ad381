package report

import (
	"fmt"
	"strings"
)

const introduction = `# Sluice compared with other programs

This page is generated from results.json by ` + "`make bench-peers`" + `, or by ` + "`make bench`" + ` with
fewer rounds. In each round, the candidates of a table perform the same task one after the other,
each in its own network namespace, and the benchmark checks that the task was done. Each round starts
with the next candidate. Values are medians, with the quartiles in parentheses. Memory and executed
programs are measured in separate runs under ptrace, except for the node agents. Bold names are
variants of Sluice. Italic names are baselines, which do only the minimum that the task requires.

`

// Markdown renders the results as a page, which refers to the plots by the names of [Plots].
func Markdown(r Results) []byte {
	var b strings.Builder
	b.WriteString(introduction)
	b.WriteString(machineSection(r))
	b.WriteString(goalTable(r.Rows))
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
	b.WriteString(soakSection(r.Soak))
	b.WriteString(scaleSection(r.Scale))
	return []byte(b.String())
}

// machineSection renders the machine and the programs.
func machineSection(r Results) string {
	var b strings.Builder
	m := r.Machine
	fmt.Fprintf(&b, "Machine: %s, %d cores, %s of memory, Linux %s, %s. "+
		"%d rounds unless a table gives another number.\n\n",
		m.CPU, m.Cores, size(float64(m.Memory)), m.Kernel, m.Go, r.Rounds)
	b.WriteString("| program | version | size |\n|---|---|---:|\n")
	for _, p := range r.Programs {
		programSize := ""
		if p.Size > 0 {
			programSize = size(float64(p.Size))
		}
		fmt.Fprintf(&b, "| %s | %s | %s |\n", p.Name, p.Version, programSize)
	}
	return b.String()
}

// goalTable returns the table of the goals.
func goalTable(rows []Row) string {
	var b strings.Builder
	b.WriteString("\n## Goals\n\n" +
		"| quantity | Sluice | compared with | ratio | goal | |\n|---|---|---|---:|---:|---|\n")
	for i := range rows {
		row := &rows[i]
		for _, g := range row.Goals {
			v, isMeasured := g.judge(row)
			if !isMeasured {
				continue
			}
			own := g.Quantity.format(v.value.Median)
			if g.Quantity == Rate {
				own += " per second"
			}
			own += " " + g.Entry
			other, ratio := "", ""
			if v.worst != nil {
				other = g.Quantity.format(v.worst.Values[g.Quantity].Median) + " " +
					v.worst.Name
				ratio = v.actual
			}
			verdict := "met"
			if !v.isMet {
				verdict = "**missed**"
			}
			fmt.Fprintf(&b, "| %s: %s: %s | %s | %s | %s | %s | %s |\n",
				row.Topic, row.Name, g.Quantity.title(), own, other, ratio, v.expected, verdict)
		}
	}
	return b.String()
}

// Table renders a row: its entries with the ratio of each to the first entry of Sluice, its goals,
// and the omitted candidates.
func Table(row Row) string {
	var b strings.Builder
	if len(row.Entries) > 0 {
		writeEntries(&b, row)
	}
	for _, o := range row.Omitted {
		fmt.Fprintf(&b, "\nOmitted: %s.\n",
			strings.TrimPrefix(o.Name+": "+abridged(oneLine(o.Text)), ": "))
	}
	for _, g := range row.Goals {
		if v, isMeasured := g.judge(&row); isMeasured {
			b.WriteString("\n" + g.sentence(v) + "\n")
		}
	}
	if row.Note != "" {
		fmt.Fprintf(&b, "\n%s\n", row.Note)
	}
	return b.String()
}

// writeEntries writes the table of the row's entries.
func writeEntries(b *strings.Builder, row Row) {
	columns := row.columns()
	head, delimiters := "| |", "|---|"
	for _, c := range columns {
		head += " " + c.title() + " |"
		delimiters += "---:|"
		if c.hasRatios() {
			head += " ratio |"
			delimiters += "---:|"
		}
	}
	fmt.Fprintf(b, "%s\n%s\n", head, delimiters)
	reference := row.reference()
	for i := range row.Entries {
		e := &row.Entries[i]
		line := "| " + e.label() + " |"
		for _, c := range columns {
			line += " " + c.cell(e) + " |"
			if c.hasRatios() {
				line += " " + c.ratio(e, reference) + " |"
			}
		}
		b.WriteString(line + "\n")
	}
	switch {
	case row.Rounds == 1:
		b.WriteString("\n1 round.\n")
	case row.Rounds > 1:
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

// reference returns the first entry of Sluice, or nil.
func (r *Row) reference() *Entry {
	for i := range r.Entries {
		if r.Entries[i].Kind == Sluice {
			return &r.Entries[i]
		}
	}
	return nil
}

// label returns the entry's name as the table prints it.
func (e *Entry) label() string {
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
func (q Quantity) cell(e *Entry) string {
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

// ratio returns the formatted ratio of the entry to the reference, or an empty string.
func (q Quantity) ratio(e, reference *Entry) string {
	if reference == nil || reference.Values[q].Median == 0 || e.Values[q].Median == 0 {
		return ""
	}
	return threeDigits(e.Values[q].Median/reference.Values[q].Median) + "×"
}

// sentence describes the goal and its verdict.
func (g Goal) sentence(v verdict) string {
	end := "met."
	if !v.isMet {
		end = "**missed**."
	}
	if v.worst == nil {
		return fmt.Sprintf("Goal: %s of %s %s: %s, %s", g.Quantity.title(), g.Entry, v.expected,
			v.actual, end)
	}
	return fmt.Sprintf("Goal: %s of %s %s × %s: %s, %s", g.Quantity.title(), g.Entry, v.expected,
		v.worst.Name, v.actual, end)
}

// oneLine returns the text on one line.
func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }

// maxReason is the maximum length in bytes of the reason for omitting a candidate. It is needed
// because some programs log all their parameters when they fail.
const maxReason = 300

// abridged returns the text without its middle if it is longer than maxReason. The start names the
// failed operation, and the end names the cause.
func abridged(text string) string {
	if len(text) <= maxReason {
		return text
	}
	return strings.ToValidUTF8(text[:maxReason/2], "") + " … " +
		strings.ToValidUTF8(text[len(text)-maxReason/2:], "")
}
