package doctor

import (
	"cmp"
	"slices"

	"github.com/sluice-mesh/sluice/rules"
)

// A Finding is a result of the diagnosis.
type Finding struct {
	// Topic groups findings: "kernel", "permission", "settings", "interfaces", "routing", "rules",
	// "programs" or "sockets".
	Topic    string   `json:"topic"`
	Severity Severity `json:"severity"`
	// Summary is a sentence, without a full stop, about the finding and its consequence for
	// capture.
	Summary string `json:"verdict"`
	// Next is the remedy; empty if none is needed or known.
	Next string `json:"next,omitempty"`
	// Prevented is set if the cause is the kernel or a missing permission, which cannot be
	// corrected in the namespace.
	Prevented bool `json:"prevented,omitempty"`
}

// Severity is the severity of a finding.
type Severity string

// The severities.
const (
	OK      Severity = "ok"
	Note    Severity = "note"    // harmless
	Warning Severity = "warning" // capture works, but something may interfere with it
	Problem Severity = "problem" // capture fails or differs from the parameters
)

var severities = []Severity{Problem, Warning, Note, OK}

// Verdict is the conclusion from all findings.
type Verdict string

// The verdicts.
const (
	Works     Verdict = "works"     // nothing prevents capture
	Degraded  Verdict = "degraded"  // capture fails; a change in the namespace can correct it
	Prevented Verdict = "prevented" // capture fails because of the kernel or a missing permission
)

// Message returns the verdict as a sentence without a full stop.
func (v Verdict) Message() string {
	switch v {
	case Degraded:
		return "a problem in this namespace prevents capture from working as these parameters" +
			" specify"
	case Prevented:
		return "the kernel or a missing permission prevents this process from capturing traffic in" +
			" this namespace"
	}
	return "capture can work in this namespace"
}

// NodeMessage is [Verdict.Message] for the findings of [DiagnoseNode].
func (v Verdict) NodeMessage() string {
	switch v {
	case Degraded:
		return "a problem on this node prevents probes of pods in ambient mode from getting their" +
			" source address"
	case Prevented:
		return "the kernel or a missing permission prevents this process from writing the node's" +
			" rules for probes"
	}
	return "the node's rules for probes can work"
}

// VerdictOf returns the verdict for the findings.
func VerdictOf(findings []Finding) Verdict {
	verdict := Works
	for _, f := range findings {
		switch {
		case f.Severity != Problem:
		case f.Prevented:
			return Prevented
		default:
			verdict = Degraded
		}
	}
	return verdict
}

// Diagnose returns the findings for a redirection, the most severe first. It panics if the
// parameters are invalid (see [rules.Redirect.Validate]).
func Diagnose(f Facts, r rules.Redirect) []Finding {
	d := &diagnosis{Facts: f, redirect: r}
	return d.run()
}

// run makes all checks of a pod's redirection, and returns the findings.
func (d *diagnosis) run() []Finding {
	d.compiled = d.compile(nil) // deviationsWithoutEffect depends on a compiled ruleset
	d.compiled = d.compile(d.deviationsWithoutEffect())
	d.checkKernel()
	d.checkLegacyKernel()
	d.checkPermission()
	d.checkInterfaces()
	d.checkIPv6()
	d.checkSourceMark()
	d.checkMarkOfAnswers()
	d.checkConntrack()
	d.checkLocalPorts()
	d.checkDroppingRules()
	d.checkLookups()
	d.checkIPsec()
	d.checkMarkRules()
	d.checkMarkRoutes()
	d.checkPassthrough()
	d.checkNFTables()
	d.checkIstio()
	d.checkLegacy()
	d.checkConflicts()
	d.checkForeignEffect()
	d.checkPrograms()
	d.checkRawSockets()
	return d.sortFindings()
}

// sortFindings returns the findings, the most severe first.
func (d *diagnosis) sortFindings() []Finding {
	slices.SortStableFunc(d.findings, func(a, b Finding) int {
		return cmp.Compare(slices.Index(severities, a.Severity),
			slices.Index(severities, b.Severity))
	})
	return d.findings
}

// A diagnosis collects findings about a redirection. Each check method adds its findings.
type diagnosis struct {
	Facts
	redirect rules.Redirect // in ambient mode the equivalent parameters
	ambient  *rules.Ambient // nil unless the pod is in ambient mode
	compiled rules.Ruleset  // the ruleset of the parameters
	findings []Finding
}

// compile returns the ruleset of the parameters, with additional deviations disabled.
func (d *diagnosis) compile(without []rules.DeviationID) rules.Ruleset {
	if d.ambient == nil {
		r := d.redirect
		r.Without = slices.Concat(r.Without, without)
		return rules.MustCompile(r)
	}
	a := *d.ambient
	a.Without = slices.Concat(a.Without, without)
	rs, err := rules.CompileAmbient(a)
	if err != nil {
		panic(err)
	}
	return rs
}

// add adds a finding.
func (d *diagnosis) add(topic string, severity Severity, summary, next string) {
	d.findings = append(d.findings, Finding{
		Topic: topic, Severity: severity, Summary: summary, Next: next,
	})
}

// addUncorrectable adds a problem that cannot be corrected in the namespace: see
// [Finding.Prevented].
func (d *diagnosis) addUncorrectable(topic, summary, next string) {
	d.findings = append(d.findings, Finding{
		Topic: topic, Severity: Problem, Summary: summary, Next: next, Prevented: true,
	})
}

func (d *diagnosis) usesTProxy() bool { return d.redirect.Mode == rules.ModeTProxy }
