package save

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/sluice-mesh/sluice/rules"
)

// An IstioLog is what the log of an istio-init container shows of its last run.
type IstioLog struct {
	// Tables are the tables that the run left, as Parse reads them, IPv4 first; positions are lines of the log. A family whose
	// state the run did not print has none: istio-init prints that of IPv6 if it captures IPv6.
	Tables []rules.Table
	// DryRun tells that the run changed nothing. Then Tables are what it would have made of empty tables.
	DryRun bool
	// FromInput tells that some tables are what iptables-restore was given, on empty tables: in a dry run, and where the log has no
	// final state.
	FromInput bool
	// Failure is what the run failed with; empty if it did not. Tables are nevertheless what it left.
	Failure string
	// Redirect is the parameters that the run printed. Its LoopbackCIDR is the default, since the log does not say it. Nil if the
	// log does not show all of them, or one of them cannot be used, or the run was to remove rules only: then NoRedirect says why.
	Redirect   *rules.Redirect
	NoRedirect error
}

// ParseIstioLog reads the log of an istio-init container as `kubectl logs` prints it, also with --timestamps or --prefix: Istio's
// plain format with or without time, or JSON. Of several runs in a log, the last counts. File is the name that errors have for the
// log.
//
// The error is that of [Parse], a [*SyntaxError] where the log shows no iptables rules, or that of reading. Among the former is a
// run with native nftables: its log has no rules in a format that this package reads.
func ParseIstioLog(file string, r io.Reader) (IstioLog, error) {
	data, err := io.ReadAll(r)
	if err != nil {
		return IstioLog{}, fmt.Errorf("read %s: %w", file, err)
	}
	entries := logEntries(string(data))
	run := lastRun(entries)
	if fault := run.unreadable(file, string(data), entries); fault != nil {
		return IstioLog{}, fault
	}
	l := IstioLog{DryRun: run.dry, Failure: run.failure()}
	var errs syntaxErrors
	for _, family := range []rules.Family{rules.IPv4, rules.IPv6} {
		text, found := run.final[family]
		if !found || run.dry {
			text, found = run.input[family]
			l.FromInput = l.FromInput || found
		}
		if !found {
			continue
		}
		p := newParser(family, file)
		l.Tables = append(l.Tables, p.parse(text.lines[1:])...)
		errs = append(errs, p.errs...)
	}
	if err := errs.err(); err != nil {
		return IstioLog{}, err
	}
	l.Redirect, l.NoRedirect = run.redirect(file)
	return l, nil
}

// An istioRun is one run of istio-iptables: the entries of its log that say something about the rules.
type istioRun struct {
	dry    bool
	native *logEntry // says that nftables was used
	config *logEntry
	input  map[rules.Family]*logEntry // of iptables-restore
	final  map[rules.Family]*logEntry // what iptables-save printed at the end
	last   *logEntry
	stage  stage // the latest
}

// A stage is how far a run is. Runs go through the stages in ascending order, and may leave out some.
type stage uint8

const (
	noStage stage = iota
	begin
	environment
	config
	input
	input6
	final
	final6
)

// stageOf tells to which stage an entry belongs. The texts are those of istio-iptables, and of older versions of it.
func stageOf(e *logEntry) stage {
	title := e.title()
	switch {
	case title == "running iptables in dry-run mode, no rule changes will be made", isNative(title):
		return begin
	case title == "Istio iptables environment:":
		return environment
	case title == "Istio config:", title == "Istio iptables variables:":
		return config
	case strings.HasPrefix(title, "Running ") && strings.Contains(title, "tables") && strings.HasSuffix(title, "the following input:"):
		if strings.Contains(title, "ip6tables") {
			return input6
		}
		return input
	case title == "Final iptables state (IPv4):":
		return final
	case title == "Final iptables state (IPv6):":
		return final6
	}
	return noStage
}

// isNative tells whether an entry is of a run that writes nftables rules.
func isNative(title string) bool {
	return strings.HasPrefix(title, "native nftables enabled") || title == "Istio nftables environment:" ||
		title == "nftables rules programmed:"
}

// lastRun collects the entries of the last run.
func lastRun(entries []logEntry) istioRun {
	var run istioRun
	for i := range entries {
		e := &entries[i]
		s := stageOf(e)
		if s != noStage && run.endsBefore(e, s) {
			run = istioRun{}
		}
		run.add(e, s)
	}
	return run
}

// endsBefore tells whether the entry belongs to another run.
func (r *istioRun) endsBefore(e *logEntry, s stage) bool {
	if r.native != nil && isNative(e.title()) {
		return false
	}
	return s <= r.stage || r.native != nil && s != config
}

func (r *istioRun) add(e *logEntry, s stage) {
	if r.input == nil {
		r.input, r.final = map[rules.Family]*logEntry{}, map[rules.Family]*logEntry{}
	}
	switch s {
	case begin:
		switch native := isNative(e.title()); {
		case !native:
			r.dry = true
		case r.native == nil:
			r.native = e
		}
	case config:
		r.config = e
	case input:
		r.input[rules.IPv4] = e
	case input6:
		r.input[rules.IPv6] = e
	case final:
		r.final[rules.IPv4] = e
	case final6:
		r.final[rules.IPv6] = e
	}
	// The last entry of a dry run says so too; the beginning of the log may be missing.
	r.dry = r.dry || e.title() == "skipping configuring routes due to dry run mode"
	r.stage = max(r.stage, s)
	r.last = e
}

// failure is what the run ended with, if that is an error: istio-iptables logs it last.
func (r *istioRun) failure() string {
	if r.last == nil || !slices.Contains([]string{"error", "fatal", "critical"}, r.last.level) {
		return ""
	}
	return strings.TrimSpace(r.last.message())
}

// unreadable says why the run shows no rules, nil if it does.
func (r *istioRun) unreadable(file string, log string, entries []logEntry) error {
	start, _, _ := strings.Cut(log, "\n")
	of := func(e *logEntry, want string) error {
		return &SyntaxError{File: file, Line: e.lines[0].number, Column: max(e.lines[0].before, -1) + 1, Token: e.title(), Want: want}
	}
	switch {
	case len(entries) == 0:
		return &SyntaxError{File: file, Line: 1, Column: 1, Token: start, Want: "an entry of the log of istio-init"}
	case r.native != nil:
		return of(r.native, "a run with iptables; of one with native nftables the log shows no rules that can be read: "+
			"read those in the namespace")
	case len(r.final) == 0 && len(r.input) == 0 && r.failure() != "":
		return of(r.last, "a run that came to the rules: this one failed before")
	case len(r.final) == 0 && len(r.input) == 0:
		return of(r.last, "rules behind it: the log ends before it shows any")
	case len(r.final) == 0 && r.failure() != "":
		return of(r.last, "the final state before it: of a run that failed, nothing else says what it left")
	case r.configured("ENABLE_INBOUND_IPV6") == "true" && r.final[rules.IPv6] == nil && r.input[rules.IPv6] == nil:
		return of(r.last, "the rules of IPv6 behind it, since the run captures IPv6")
	}
	return nil
}
