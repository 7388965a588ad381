package main

import (
	"context"
	"fmt"
	"io"
	"os/signal"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-mesh/sluice/plugin/signals"
	"github.com/sluice-mesh/sluice/rules"
)

// A liveView prints the rules of the kernel with their counters.
type liveView struct {
	s     *system
	exact bool
	read  func() (live rules.Ruleset, warnings []string, err error)
	// before contains the counters of the last reading, by rule. lastTime is the time of the last
	// reading.
	before   map[ruleKey]rules.Hits
	lastTime time.Time
	warnings repeatedWarnings
}

// A ruleKey identifies a rule across readings: the nth rule with the text in the chain, from 0.
type ruleKey struct {
	table, chain, text string
	n                  int
}

// showLive prints the live rules once, or with --watch repeatedly until a signal.
func (s *system) showLive(p *parameters) error {
	v := liveView{s: s, exact: p.exact, read: p.readLive}
	if p.watch == 0 {
		return v.print(time.Time{})
	}
	ctx, stop := signal.NotifyContext(context.Background(), signals.End()...)
	defer stop()
	ticker := time.NewTicker(p.watch)
	defer ticker.Stop()
	return v.watch(ctx, time.Now(), ticker.C)
}

// watch prints the rules now and at each tick, until the context is done.
func (v *liveView) watch(ctx context.Context, now time.Time, ticks <-chan time.Time) error {
	for {
		if err := v.print(now); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case now = <-ticks:
		}
	}
}

// print reads and prints the rules. The time is zero without --watch.
func (v *liveView) print(now time.Time) error {
	live, warnings, err := v.read()
	if err != nil {
		return err
	}
	warnings = append(warnings, countersWarnings(&live)...)
	isScreen := !now.IsZero() && bool(v.s.color) && !v.s.json
	if !isScreen {
		v.warnings.print(v.s, warnings)
	}
	if v.s.json {
		d := rulesetDocumentOf(live)
		d.addCounters(&live)
		if now.IsZero() {
			return v.s.print("", d)
		}
		d.Time = now.UTC().Format(time.RFC3339Nano)
		return v.s.printLine(d)
	}
	lines := v.text(&live, now)
	if now.IsZero() {
		return v.s.printText(lines)
	}
	v.lastTime = now
	lines = now.Format(time.RFC3339) + "\n" + lines + "\n"
	if isScreen {
		const clearTerminal = "\x1b[H\x1b[2J"
		if _, err := io.WriteString(v.s.stdout, clearTerminal); err != nil {
			return systemError(err)
		}
		// On stderr, the next clearing of the terminal would remove them.
		for _, text := range warnings {
			lines += "warning: " + rules.Printable(text) + "\n"
		}
	}
	return v.s.printText(lines)
}

// countersWarnings returns a warning if Sluice's rules have no counters.
func countersWarnings(live *rules.Ruleset) []string {
	var warnings []string
	for i := range live.Tables {
		t := &live.Tables[i]
		if t.Name != rules.TableName || t.Family != rules.Inet {
			continue
		}
		if own := (rules.Ruleset{Tables: []rules.Table{*t}}); !own.HasCounters() {
			warnings = append(warnings, fmt.Sprintf("the rules of table %s %s have no counters; "+
				"rules apply --counters, the chart value counters or the annotation "+
				"sluice-mesh.github.io/counters of the pod adds them", t.Family, t.Name))
		}
	}
	return warnings
}

// text returns the chains in the form of iptables -vnL, and then the routing. The line of a rule
// contains its packets and bytes, and after the first reading also the rate of packets since the
// last reading.
func (v *liveView) text(live *rules.Ruleset, now time.Time) string {
	b := new(strings.Builder)
	after := map[ruleKey]rules.Hits{}
	for i := range live.Tables {
		t := &live.Tables[i]
		name := t.Family.String() + " " + t.Name
		if t.XTables {
			name = "iptables-legacy " + name
		}
		for j := range t.Chains {
			v.writeChain(b, name, &t.Chains[j], after, now)
		}
	}
	routing := rules.Ruleset{Routing: live.Routing}
	b.WriteString(routing.String())
	v.before = after
	return b.String()
}

// writeChain writes a chain and adds its counters to after.
func (v *liveView) writeChain(
	b *strings.Builder, table string, c *rules.Chain, after map[ruleKey]rules.Hits, now time.Time,
) {
	if b.Len() > 0 {
		b.WriteString("\n")
	}
	fmt.Fprintf(b, "Chain %s", rules.Printable(table+" "+c.Name))
	if c.Base != nil {
		fmt.Fprintf(b, " (%s)", strings.TrimSuffix(c.Base.String(), ";"))
	}
	hasRates := v.before != nil
	fmt.Fprintf(b, "\n%s rule\n", v.columns("pkts", "bytes", "pkts/s", hasRates))
	same := map[string]int{} // the number of rules with the text
	for i := range c.Rules {
		r := &c.Rules[i]
		line := rules.Printable(ruleText(r))
		key := ruleKey{table: table, chain: c.Name, text: line, n: same[line]}
		same[line]++
		after[key] = r.Hits
		packets, bytes, rate := "-", "-", "-"
		if r.Counts() {
			packets, bytes = v.number(r.Hits.Packets), v.number(r.Hits.Bytes)
			if last, known := v.before[key]; known && r.Hits.Packets >= last.Packets {
				rate = strconv.FormatFloat(float64(r.Hits.Packets-last.Packets)/
					now.Sub(v.lastTime).Seconds(), 'f', 1, 64)
			}
		}
		fmt.Fprintf(b, "%s %s\n", v.columns(packets, bytes, rate, hasRates), line)
	}
}

// columns aligns the numbers as iptables does, with wider columns for exact numbers.
func (v *liveView) columns(packets, bytes, rate string, hasRates bool) string {
	width := 5
	if v.exact {
		width = 10
	}
	text := fmt.Sprintf("%*s %*s", width, packets, width, bytes)
	if hasRates {
		text += fmt.Sprintf(" %8s", rate)
	}
	return text
}

// ruleText returns the rule without its counter, followed by its comment.
func ruleText(r *rules.Rule) string {
	shown := *r
	shown.Actions = rules.WithoutCount(r.Actions)
	text := shown.String()
	if r.Comment != "" {
		text = strings.TrimLeft(text+"  # "+r.Comment, " ")
	}
	return text
}

// number formats a number as iptables does: exactly up to 99999, and then in thousands, millions
// and so on (xtables_print_num).
func (v *liveView) number(n uint64) string {
	if v.exact || n <= 99999 {
		return strconv.FormatUint(n, 10)
	}
	for _, unit := range "KMG" {
		if n = (n + 500) / 1000; n <= 9999 {
			return strconv.FormatUint(n, 10) + string(unit)
		}
	}
	return strconv.FormatUint((n+500)/1000, 10) + "T"
}

// addCounters adds the counters of the live rules to the rules of the document.
func (d *rulesetDocument) addCounters(live *rules.Ruleset) {
	for i := range live.Tables {
		for j := range live.Tables[i].Chains {
			for k, r := range live.Tables[i].Chains[j].Rules {
				if r.Counts() {
					d.Tables[i].Chains[j].Rules[k].Counter = &jsonCounter{
						r.Hits.Packets, r.Hits.Bytes,
					}
				}
			}
		}
	}
}
