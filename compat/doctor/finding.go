package doctor

import (
	"cmp"
	"slices"

	"github.com/sluice-mesh/sluice/rules"
)

// A Finding is a result of the diagnosis.
type Finding struct {
	// Topic groups findings: "kernel", "permission", "settings", "interfaces", "routing" or
	// "rules".
	Topic    string   `json:"topic"`
	Severity Severity `json:"severity"`
	// Verdict is a sentence, without a full stop, about the finding and its consequence for
	// capture.
	Verdict string `json:"verdict"`
	// Next is the remedy; empty if none is needed.
	Next string `json:"next,omitempty"`
	// Prevented reports that the cause is the kernel or a missing permission, which cannot be
	// corrected in the namespace.
	Prevented bool `json:"prevented,omitempty"`
}

// Severity is the severity of a finding.
type Severity string

// The severities.
const (
	OK      Severity = "ok"
	Note    Severity = "note"    // harmless
	Warning Severity = "warning" // capture works, but may be disturbed
	Problem Severity = "problem" // capture fails or differs from the parameters
)

var severities = []Severity{Problem, Warning, Note, OK}

// Verdict is the summary of findings.
type Verdict string

// The verdicts.
const (
	Works     Verdict = "works"     // nothing prevents capture
	Disturbed Verdict = "disturbed" // something in the namespace prevents it
	Prevented Verdict = "prevented" // the kernel or a missing permission prevents it
)

// Sentence returns the verdict as a sentence without a full stop.
func (v Verdict) Sentence() string {
	switch v {
	case Disturbed:
		return "something here keeps capture from working as these parameters say"
	case Prevented:
		return "the kernel, or a missing permission, keeps this process from capturing anything here"
	}
	return "capture can work here"
}

// Sum returns the summary of the findings.
func Sum(findings []Finding) Verdict {
	sum := Works
	for _, f := range findings {
		switch {
		case f.Severity != Problem:
		case f.Prevented:
			return Prevented
		default:
			sum = Disturbed
		}
	}
	return sum
}

// Judge returns the findings for a redirection, the most severe first. It panics if the parameters
// are invalid (see [rules.Redirect.Validate]).
func Judge(f Facts, r rules.Redirect) []Finding {
	j := &judge{Facts: f, redirect: r, compiled: rules.MustCompile(r)}
	j.compiled = rules.MustCompile(j.actualPriorities())
	j.kernel()
	j.legacyKernel()
	j.permission()
	j.interfaces()
	j.ipv6()
	j.sourceMark()
	j.conntrack()
	j.localPorts()
	j.markRules()
	j.markRoutes()
	j.passthrough()
	j.owners()
	j.istio()
	j.legacy()
	j.conflicts()
	j.foreignEffect()
	slices.SortStableFunc(j.findings, func(a, b Finding) int {
		return cmp.Compare(slices.Index(severities, a.Severity),
			slices.Index(severities, b.Severity))
	})
	return j.findings
}

// judge collects findings.
type judge struct {
	Facts
	redirect rules.Redirect
	compiled rules.Ruleset
	findings []Finding
}

func (j *judge) add(topic string, severity Severity, verdict, next string) {
	j.findings = append(j.findings, Finding{
		Topic: topic, Severity: severity, Verdict: verdict, Next: next,
	})
}

// prevent adds a problem that cannot be corrected in the namespace.
func (j *judge) prevent(topic, verdict, next string) {
	j.findings = append(j.findings, Finding{
		Topic: topic, Severity: Problem, Verdict: verdict, Next: next, Prevented: true,
	})
}

func (j *judge) tproxy() bool { return j.redirect.Mode == rules.ModeTProxy }
