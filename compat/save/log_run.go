package save

import (
	"slices"
	"strings"

	"github.com/sluice-mesh/sluice/rules"
)

// An istioRun contains the log entries of a run of istio-iptables that describe the rules.
type istioRun struct {
	isDryRun    bool
	nativeEntry *logEntry // the entry that shows that nftables was used, or nil
	configEntry *logEntry
	input       map[rules.Family]*logEntry // the input of iptables-restore
	final       map[rules.Family]*logEntry // the output of iptables-save at the end
	last        *logEntry
	stage       stage // the latest stage
	// savedFamily is the family of the iptables-save command in the last entry, or Inet if the last
	// entry contains no such command.
	savedFamily rules.Family
}

// A stage is a step of a run. The stages of a run have ascending numbers. Some may be missing.
type stage uint8

const (
	noStage          stage = iota
	stageBegin             // a message about a dry run or native nftables
	stageEnvironment       // the environment variables
	stageConfig            // the parameters
	stageInput             // the input of iptables-restore
	stageInputIPv6         // the input of ip6tables-restore
	stageFinal             // the final state of IPv4
	stageFinalIPv6         // the final state of IPv6
)

// stageOf returns the stage to which an entry belongs, or noStage. It recognizes the messages of
// all supported versions of istio-iptables.
func stageOf(e *logEntry) stage {
	title := e.title()
	switch {
	case title == "running iptables in dry-run mode, no rule changes will be made", isNative(title):
		return stageBegin
	case title == "Istio iptables environment:", e.level == "" && title == "Environment:":
		return stageEnvironment
	case title == "Istio config:", title == "Istio iptables variables:",
		e.level == "" && title == "Variables:":
		return stageConfig
	case strings.HasPrefix(title, rulesFileTitle):
		if strings.Contains(title, "ip6tables-rules") {
			return stageInputIPv6
		}
		return stageInput
	case strings.HasPrefix(title, "Running ") && strings.Contains(title, "tables") &&
		strings.HasSuffix(title, "the following input:"):
		if strings.Contains(title, "ip6tables") {
			return stageInputIPv6
		}
		return stageInput
	case title == "Final iptables state (IPv4):":
		return stageFinal
	case title == "Final iptables state (IPv6):":
		return stageFinalIPv6
	}
	return noStage
}

// isNative reports whether the title of an entry shows that the run writes nftables rules.
func isNative(title string) bool {
	return strings.HasPrefix(title, "native nftables enabled") ||
		title == "Istio nftables environment:" ||
		title == "nftables rules programmed:"
}

// lastRun returns the last run. If the log has entries of several containers, the last run is the
// run to which the last entry with a stage belongs.
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
		if s != noStage && run.isAnotherRun(e, s) {
			run = istioRun{}
		}
		run.add(e, s)
	}
	return run
}

// isAnotherRun reports whether an entry of the stage begins another run.
func (r *istioRun) isAnotherRun(e *logEntry, s stage) bool {
	if r.nativeEntry != nil && isNative(e.title()) {
		return false
	}
	return s <= r.stage || r.nativeEntry != nil && s != stageConfig
}

// add adds an entry to the run. s is the stage of the entry.
func (r *istioRun) add(e *logEntry, s stage) {
	if r.input == nil {
		r.input, r.final = map[rules.Family]*logEntry{}, map[rules.Family]*logEntry{}
	}
	switch s {
	case stageBegin:
		switch native := isNative(e.title()); {
		case !native:
			r.isDryRun = true
		case r.nativeEntry == nil:
			r.nativeEntry = e
		}
	case stageConfig:
		r.configEntry = e
	case stageInput:
		r.input[rules.IPv4] = e
	case stageInputIPv6:
		r.input[rules.IPv6] = e
	case stageFinal:
		r.final[rules.IPv4] = e
	case stageFinalIPv6:
		r.final[rules.IPv6] = e
	}
	r.addSaveOutput(e, s)
	// The last entry shows that the run is a dry run, even if the beginning of the log is missing.
	r.isDryRun = r.isDryRun || e.title() == "skipping configuring routes due to dry run mode"
	r.stage = max(r.stage, s)
	r.last = e
}

// addSaveOutput records the output of iptables-save as the final state. Versions that do not print
// "Final iptables state" run iptables-save at the end. The output of a command before the input of
// iptables-restore is discarded.
func (r *istioRun) addSaveOutput(e *logEntry, s stage) {
	title := strings.TrimPrefix(e.title(), "+ ")
	switch {
	case s == stageInput || s == stageInputIPv6:
		if r.stage < stageFinal {
			clear(r.final)
		}
	case e.level == "" && isSaveCommand(title):
		r.final[familyOf(title)] = e
	case r.savedFamily != rules.Inet && title == "Command output:" && r.stage < stageFinal &&
		r.stage >= stageInput:
		r.final[r.savedFamily] = e
	}
	r.savedFamily = rules.Inet
	_, command, _ := strings.Cut(title, ": ")
	if strings.HasPrefix(title, "Running command") && isSaveCommand(command) {
		r.savedFamily = familyOf(command)
	}
}

// isSaveCommand reports whether a command is iptables-save, or a variant such as
// ip6tables-nft-save, without arguments.
func isSaveCommand(command string) bool {
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

// failure returns the error of the run, or an empty text. istio-iptables logs the error of a run as
// the last entry.
func (r *istioRun) failure() string {
	if r.last == nil || !slices.Contains([]string{"error", "fatal", "critical"}, r.last.level) {
		return ""
	}
	if strings.HasPrefix(r.last.title(), "panic: ") {
		return r.last.title() // the stack trace follows
	}
	return strings.TrimSpace(r.last.message())
}
