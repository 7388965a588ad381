// Package doctor diagnoses causes that prevent redirection in a network namespace: missing kernel
// features and permissions, sysctls, interfaces, routing, IPsec policies, foreign rules, eBPF
// programs, and packet and raw sockets.
//
// [Gather] reads the [Facts] without changing the namespace. A failed read is also a fact.
// [Diagnose] derives findings from the facts and the parameters of a redirection, each with a
// [Severity] and the next step. It reads nothing itself. [VerdictOf] returns the verdict of all
// findings.
//
//	facts := doctor.Gather(ns, ruleset, diff.AgentRetryBudget)
//	for _, f := range doctor.Diagnose(facts, redirect) {
//		fmt.Println(f.Severity, f.Topic, f.Summary)
//	}
package doctor
