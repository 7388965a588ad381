// Package doctor diagnoses causes that prevent redirection in a network namespace: missing kernel
// features and permissions, sysctls, routing, foreign rules, and what decides outside netfilter:
// eBPF programs, and packet and raw sockets.
//
// [Gather] reads the [Facts]. It changes nothing; a failed read is also a fact. [Diagnose] is a
// pure function. It derives from the facts and the parameters of a redirection a list of [Finding],
// each with a [Severity] and the next step. [Sum] returns the verdict of all findings.
//
//	facts := doctor.Gather(ns, ruleset)
//	for _, f := range doctor.Diagnose(facts, redirect) {
//		fmt.Println(f.Severity, f.Topic, f.Verdict)
//	}
package doctor
