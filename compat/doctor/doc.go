// Package doctor looks for whatever could keep redirection from working in a network namespace:
// kernel features and permissions, sysctls, routing, and rules of other owners.
//
// [Gather] reads the [Facts]. It changes nothing; what it may not read is a fact, too. [Judge] is
// pure: from the facts and the parameters of a redirection it makes one [Finding] for each thing
// worth knowing, with its [Severity] and the next step. [Sum] is the verdict over all findings.
//
//	facts := doctor.Gather(ns, ruleset)
//	for _, f := range doctor.Judge(facts, redirect) {
//		fmt.Println(f.Severity, f.Topic, f.Verdict)
//	}
package doctor
