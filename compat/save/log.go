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
	// line of the log. Tables contains no tables of a family if the log contains neither its final
	// state nor its input. istio-init prints these for IPv6 only if it captures IPv6.
	Tables []rules.Table
	// DryRun is set if the run was a dry run, which changes nothing. Tables are then the result of
	// the same run on empty tables.
	DryRun bool
	// FromInput is set if some tables are the result of applying the input of iptables-restore to
	// empty tables. This is the case in a dry run, and if the log lacks the final state of a
	// family.
	FromInput bool
	// Failure is the error of the run, or empty if the run succeeded. A failed run has tables too.
	Failure string
	// Redirect contains the printed parameters of the run. It is nil if the log lacks parameters
	// that its version prints, if a parameter is invalid, or if the run only removed rules.
	// NoRedirect is then the reason.
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
// The error is an error of [Parse], a [*SyntaxError] if the log contains no iptables rules, lacks
// some of them or has more than 262,144 lines, or an error of reading. A run with native nftables
// is an error too, because its log has no rules in a format that this package reads.
func ParseIstioLog(file string, r io.Reader) (IstioLog, error) {
	data, err := io.ReadAll(r)
	if err != nil {
		return IstioLog{}, fmt.Errorf("read %s: %w", file, err)
	}
	entries, fault := logEntries(file, string(data))
	if fault != nil {
		return IstioLog{}, fault
	}
	run := lastRun(entries)
	if fault := run.unreadableError(file, string(data), entries); fault != nil {
		return IstioLog{}, fault
	}
	l := IstioLog{DryRun: run.isDryRun, Failure: run.failure()}
	var errs syntaxErrors
	size := 0
	for _, family := range []rules.Family{rules.IPv4, rules.IPv6} {
		entry, found := run.final[family]
		isInput := !found || run.isDryRun
		if isInput {
			entry, found = run.input[family]
		}
		if !found {
			continue
		}
		p := newParser(family, file)
		p.size = size
		tables := p.parse(slices.Values(entry.lines[1:]))
		size = p.size
		if len(p.errs.list) == 0 && run.isTruncated(family, entry, tables) {
			return IstioLog{}, syntaxErrorAt(file, entry, endsBeforeRules)
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

// howToLog is the part of errors that names the command that prints the log.
const howToLog = "as kubectl logs POD -c istio-init prints it"

// endsBeforeRules is the [SyntaxError.Want] of the error about a log that ends before its rules.
const endsBeforeRules = "rules after it: the log ends before it shows any"

// syntaxErrorAt returns an error about an entry.
func syntaxErrorAt(file string, e *logEntry, want string) *SyntaxError {
	return &SyntaxError{
		File: file, Line: e.lines[0].number, Column: max(e.lines[0].before, -1) + 1,
		Token: e.title(), Want: want,
	}
}

// isTruncated reports whether the entry lacks some tables, because the log ends within the entry or
// another program has written to the log. tables are the tables that the entry contains. Every run
// adds rules of IPv4, and rules of IPv6 if it captures IPv6. The final state contains all tables of
// the input. A run that fails or only removes rules may leave no table.
func (r *istioRun) isTruncated(family rules.Family, entry *logEntry, tables []rules.Table) bool {
	if r.failure() != "" || r.configValue("CLEANUP_ONLY") == "true" {
		return false
	}
	inputEntry := r.input[family]
	required := family == rules.IPv4 || isEnabled(r.configValue("ENABLE_INBOUND_IPV6")) ||
		entry == r.last && (inputEntry == nil || r.configEntry == nil)
	if len(tables) == 0 && required {
		return true
	}
	if inputEntry == nil || inputEntry == entry {
		return false
	}
	return slices.ContainsFunc(inputEntry.lines[1:], func(l textLine) bool {
		name, beginsTable := strings.CutPrefix(strings.Trim(l.text, blanks), "*")
		name = strings.Trim(name, blanks)
		return beginsTable && builtInHooks(name) != nil &&
			!slices.ContainsFunc(tables, func(t rules.Table) bool { return t.Name == name })
	})
}

// unreadableError returns nil if the log may contain the resulting rules of the run. Otherwise the
// error describes why it does not.
func (r *istioRun) unreadableError(file string, log string, entries []logEntry) error {
	start, _, _ := strings.Cut(log, "\n")
	errorAt := func(e *logEntry, want string) error { return syntaxErrorAt(file, e, want) }
	switch {
	case len(entries) == 0:
		want := "an entry of the log of istio-init, " + howToLog + LooksLike(log)
		return &SyntaxError{File: file, Line: 1, Column: 1, Token: start, Want: want}
	case r.nativeEntry != nil:
		return errorAt(r.nativeEntry,
			"a run with iptables: the log of a run with native nftables contains no readable rules; "+
				"read the rules of the namespace")
	case len(r.final) == 0 && len(r.input) == 0 && r.failure() != "":
		return errorAt(r.last, "a run that applied rules: this run failed before it applied any")
	case len(r.final) == 0 && len(r.input) == 0 && r.stage == noStage:
		return errorAt(&entries[0], "the log of istio-init, "+howToLog+": this is another log")
	case len(r.final) == 0 && len(r.input) == 0:
		return errorAt(r.last, endsBeforeRules)
	case len(r.final) == 0 && r.failure() != "":
		return errorAt(r.last,
			"the final state before it, because only this shows the rules after a failed run")
	case isEnabled(r.configValue("ENABLE_INBOUND_IPV6")) && r.final[rules.IPv6] == nil &&
		r.input[rules.IPv6] == nil:
		return errorAt(r.last, "the rules of IPv6 after it, because the run captures IPv6")
	}
	return nil
}
