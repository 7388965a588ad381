package save

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/sluice-mesh/sluice/rules"
)

// An IstioLog is the result of the last run in a log of an istio-init container.
type IstioLog struct {
	// Tables are the resulting tables, as Parse returns them, IPv4 first. [rules.Rule.Line] is a
	// line of the log. If the log does not contain the state of a family, it has no tables:
	// istio-init prints the state of IPv6 only if it captures IPv6.
	Tables []rules.Table
	// DryRun reports that the run changed nothing. Then Tables are the result for empty tables.
	DryRun bool
	// FromInput reports that some tables are the result of applying the input of iptables-restore
	// to empty tables. This is the case in a dry run, and if the log has no final state.
	FromInput bool
	// Failure is the error of the run, or empty. Tables is also set if the run failed.
	Failure string
	// Redirect contains the printed parameters of the run. It is nil if the log does not contain
	// all parameters, if a parameter is invalid, or if the run only removed rules. NoRedirect is
	// then the reason.
	Redirect   *rules.Redirect
	NoRedirect error
	// Unstated contains the names, in istio-iptables, of the parameters of Redirect that have
	// default values because the log does not contain them. These are HOST_IPV4_LOOPBACK_CIDR,
	// which no version prints, and parameters that an older version lacks or does not print.
	Unstated []string
}

// ParseIstioLog reads the log of an istio-init container as `kubectl logs` prints it, also with
// --timestamps or --prefix, or as a container runtime stores it. The format is Istio's format with
// or without time, JSON, or the plain output of versions up to 1.9. If the log contains several
// runs, ParseIstioLog returns the last run. file is the name of the log in errors.
//
// The error is an error of [Parse], a [*SyntaxError] if the log contains no iptables rules, or an
// error of reading. A run with native nftables is an error too, because its log has no rules in a
// format that this package reads.
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
		isInput := !found || run.dry
		if isInput {
			text, found = run.input[family]
		}
		if !found {
			continue
		}
		p := newParser(family, file)
		tables := p.parse(slices.Values(text.lines[1:]))
		if len(p.errs.list) == 0 && run.isTruncated(family, text, tables) {
			return IstioLog{}, syntaxErrorAt(file, text, endsBeforeRules)
		}
		l.Tables = append(l.Tables, tables...)
		l.FromInput = l.FromInput || isInput && len(tables) > 0
		errs.addAll(&p.errs)
	}
	if err := errs.err(); err != nil {
		return IstioLog{}, err
	}
	l.Redirect, l.Unstated, l.NoRedirect = run.redirect(file)
	return l, nil
}

// An istioRun contains the log entries of a run of istio-iptables that describe the rules.
type istioRun struct {
	dry    bool
	native *logEntry // the entry that shows that nftables was used, or nil
	config *logEntry
	input  map[rules.Family]*logEntry // the input of iptables-restore
	final  map[rules.Family]*logEntry // the output of iptables-save at the end
	last   *logEntry
	stage  stage // the latest stage
	// saving is the family of the iptables-save command in the last entry, or Inet if the entry is
	// another one.
	saving rules.Family
}

// A stage is a stage of a run. The stages of a run have ascending numbers. Some may be missing.
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

// stageOf returns the stage to which an entry belongs, or noStage. It knows the messages of all
// supported versions of istio-iptables.
func stageOf(e *logEntry) stage {
	title := e.title()
	switch {
	case title == "running iptables in dry-run mode, no rule changes will be made", isNative(title):
		return begin
	case title == "Istio iptables environment:", e.level == "" && title == "Environment:":
		return environment
	case title == "Istio config:", title == "Istio iptables variables:",
		e.level == "" && title == "Variables:":
		return config
	case strings.HasPrefix(title, rulesFileTitle):
		if strings.Contains(title, "ip6tables-rules") {
			return input6
		}
		return input
	case strings.HasPrefix(title, "Running ") && strings.Contains(title, "tables") &&
		strings.HasSuffix(title, "the following input:"):
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

// isNative reports whether an entry belongs to a run that writes nftables rules.
func isNative(title string) bool {
	return strings.HasPrefix(title, "native nftables enabled") ||
		title == "Istio nftables environment:" ||
		title == "nftables rules programmed:"
}

// lastRun returns the last run. If the log has entries of several containers, it is the last run of
// the container whose run began or continued last.
func lastRun(entries []logEntry) istioRun {
	var run istioRun
	if len(entries) == 0 {
		return run
	}
	source := entries[len(entries)-1].source
	for i := range entries {
		if stageOf(&entries[i]) != noStage {
			source = entries[i].source
		}
	}
	for i := range entries {
		e := &entries[i]
		if e.source != source {
			continue
		}
		s := stageOf(e)
		if s != noStage && run.endsBefore(e, s) {
			run = istioRun{}
		}
		run.add(e, s)
	}
	return run
}

// endsBefore reports whether the entry belongs to another run.
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
	r.addSaved(e, s)
	// The last entry of a dry run shows that it is one, even if the begin of the log is missing.
	r.dry = r.dry || e.title() == "skipping configuring routes due to dry run mode"
	r.stage = max(r.stage, s)
	r.last = e
}

// addSaved records the output of iptables-save. Older versions run it at the end, and other
// versions also at the begin.
func (r *istioRun) addSaved(e *logEntry, s stage) {
	title := strings.TrimPrefix(e.title(), "+ ")
	switch {
	case s == input || s == input6:
		if r.stage < final {
			clear(r.final)
		}
	case e.level == "" && isSave(title):
		r.final[familyOf(title)] = e
	case r.saving != rules.Inet && title == "Command output:" && r.stage < final &&
		r.stage >= input:
		r.final[r.saving] = e
	}
	r.saving = rules.Inet
	_, command, _ := strings.Cut(title, ": ")
	if strings.HasPrefix(title, "Running command") && isSave(command) {
		r.saving = familyOf(command)
	}
}

// isSave reports whether a command is iptables-save or a variant without arguments.
func isSave(command string) bool {
	command = strings.TrimRight(command, blanks)
	return strings.HasPrefix(command, "ip") && strings.HasSuffix(command, "-save") &&
		!strings.Contains(command, " ")
}

// familyOf returns the family of an iptables command.
func familyOf(command string) rules.Family {
	if strings.HasPrefix(command, "ip6") {
		return rules.IPv6
	}
	return rules.IPv4
}

// failure returns the error of the run, or an empty text. istio-iptables logs an error last.
func (r *istioRun) failure() string {
	if r.last == nil || !slices.Contains([]string{"error", "fatal", "critical"}, r.last.level) {
		return ""
	}
	if strings.HasPrefix(r.last.title(), "panic: ") {
		return r.last.title() // the stack trace follows
	}
	return strings.TrimSpace(r.last.message())
}

// howToLog describes the command that prints the log, in errors.
const howToLog = "as kubectl logs POD -c istio-init prints it"

// endsBeforeRules is what a log that ends early lacks.
const endsBeforeRules = "rules after it: the log ends before it shows any"

// syntaxErrorAt returns an error about an entry.
func syntaxErrorAt(file string, e *logEntry, want string) *SyntaxError {
	return &SyntaxError{
		File: file, Line: e.lines[0].number, Column: max(e.lines[0].before, -1) + 1,
		Token: e.title(), Want: want,
	}
}

// isTruncated reports whether the log lacks tables of an entry, because it ends there or because
// another program has written to it. Every run adds rules of IPv4, and rules of IPv6 if it captures
// IPv6. The final state contains all tables of the input. A run that fails or removes rules may
// leave no table.
func (r *istioRun) isTruncated(family rules.Family, text *logEntry, tables []rules.Table) bool {
	if r.failure() != "" || r.configValue("CLEANUP_ONLY") == "true" {
		return false
	}
	given := r.input[family]
	required := family == rules.IPv4 || isEnabled(r.configValue("ENABLE_INBOUND_IPV6")) ||
		text == r.last && (given == nil || r.config == nil)
	if len(tables) == 0 && required {
		return true
	}
	if given == nil || given == text {
		return false
	}
	return slices.ContainsFunc(newParser(family, "").parse(slices.Values(given.lines[1:])),
		func(input rules.Table) bool {
			return !slices.ContainsFunc(tables, func(t rules.Table) bool { return t.Name == input.Name })
		})
}

// unreadable returns an error with the reason why the run contains no rules, or nil.
func (r *istioRun) unreadable(file string, log string, entries []logEntry) error {
	start, _, _ := strings.Cut(log, "\n")
	errorAt := func(e *logEntry, want string) error { return syntaxErrorAt(file, e, want) }
	switch {
	case len(entries) == 0:
		want := "an entry of the log of istio-init, " + howToLog + LooksLike(log)
		return &SyntaxError{File: file, Line: 1, Column: 1, Token: start, Want: want}
	case r.native != nil:
		return errorAt(r.native,
			"a run with iptables; of one with native nftables the log shows no rules that can be read: "+
				"read those in the namespace")
	case len(r.final) == 0 && len(r.input) == 0 && r.failure() != "":
		return errorAt(r.last, "a run that came to the rules: this one failed before")
	case len(r.final) == 0 && len(r.input) == 0 && r.stage == noStage:
		return errorAt(&entries[0], "the log of istio-init, "+howToLog+": this is another log")
	case len(r.final) == 0 && len(r.input) == 0:
		return errorAt(r.last, endsBeforeRules)
	case len(r.final) == 0 && r.failure() != "":
		return errorAt(r.last,
			"the final state before it: of a run that failed, nothing else says what it left")
	case isEnabled(r.configValue("ENABLE_INBOUND_IPV6")) && r.final[rules.IPv6] == nil &&
		r.input[rules.IPv6] == nil:
		return errorAt(r.last, "the rules of IPv6 after it, because the run captures IPv6")
	}
	return nil
}
