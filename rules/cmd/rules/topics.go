package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sluice-mesh/sluice/rules"
)

// topics returns the pages of `rules help` that do not belong to a command.
func topics() []*cobra.Command {
	return []*cobra.Command{
		topic("deviations", "deviations from the rules of istio-init", deviationsHelp),
		topic("environment", "the environment variables", environmentHelp),
		topic("exit-codes", "the exit codes", func() string { return exitCodesHelp }),
		topic("json", "JSON output", func() string { return jsonHelp }),
		topic("json-schema", "the JSON Schema of JSON output", func() string { return jsonSchema }),
	}
}

// topic returns a command that has only a help text.
func topic(name, short string, text func() string) *cobra.Command {
	cmd := &cobra.Command{Use: name, Short: short}
	cmd.SetHelpFunc(func(cmd *cobra.Command, _ []string) { fmt.Fprint(cmd.OutOrStdout(), text()) })
	return cmd
}

// environmentHelp returns the help topic "environment".
func environmentHelp() string {
	b := new(strings.Builder)
	b.WriteString(`The variables are istio-iptables'. With --ambient, the variables of istio-cni in
ambient mode are read, and the variables that apply only to a sidecar are ignored. A flag overrides
its variables; if a parameter has two variables, the second overrides the first. An overridden value
is not read. An empty variable means an empty list; for a parameter that is not a list it counts as
not set. A bad value is an error, whereas istio-iptables uses the default. --envoy-port has no
variable.

A flag marked repeatable may be given several times, and every value is added to the list. One value
may contain several elements, separated by commas. If another flag is given several times, the last
value counts. The kernel limits one argument and one variable to 128 KiB, which some thousand
prefixes exceed. An element @FILE of a list stands for the elements in the file, which are separated
by commas, blanks or ends of lines; # begins a comment.

`)
	for _, p := range table() {
		for _, variable := range p.variables {
			meaning := "the same as --" + p.flag
			if p.flag == "" {
				meaning = p.description()
			}
			fmt.Fprintf(b, "  %s\n", variable)
			for _, line := range wrap(meaning, helpWidth-8) {
				fmt.Fprintf(b, "        %s\n", line)
			}
		}
	}
	b.WriteString(`
NO_COLOR, if not empty, disables colors. Output that is not a terminal has no colors.
`)
	return b.String()
}

// deviationsHelp returns the help topic "deviations".
func deviationsHelp() string {
	b := new(strings.Builder)
	b.WriteString(`Every new connection has the outcome that the iptables rules of istio-init give it,
except for these deviations. --without ID disables one, --strict-istio all of them.
`)
	for _, d := range rules.Deviations {
		fmt.Fprintf(b, "\n  %s\n", d.ID)
		for _, line := range wrap(d.Reason, helpWidth-8) {
			fmt.Fprintf(b, "        %s\n", line)
		}
	}
	return b.String()
}

// jsonHelp is the help topic "json".
const jsonHelp = `With --output json each command prints one object to stdout, but trace and show
--watch print one a line; warnings, errors and progress are objects on stderr, one a line. Each
object has "version" (1) and "kind". New fields may be added; "version" changes if a reader of the
older form would misunderstand the newer form. rules help json-schema prints the JSON Schema of all
kinds.

error, warning, progress  (Error, Warning, Progress) a field of the same name: the text

show (Ruleset; in other objects a RULESET)
  tables[]  family (inet, ip, ip6), name,
            sets[]:   name, family (ip, ip6), elements[] (address, prefix, or first-last)
            chains[]: name, rules[]; a base chain also has type (filter, nat, route), hook,
                      priority (a number; smaller runs first) and policy (accept, drop)
            rules[]:  text (in the syntax of nft), comment, matches[], actions[] (both in the order
                      of the rule), with --live counter: packets, bytes
  matches[] match, of, not (true if negated), values[] (one of them must hold) or set (the name of
            a set), mask, text
            match      of                   values
            interface  in, out              names; a final * matches every ending
            family                          ip, ip6
            address    source, destination  address, prefix, or first-last
            protocol                        name or number
            port       source, destination  number, or first-last
            tcp-flags                       the flags in mask that must be set
            owner      user, group          id, or first-last
            cgroup                          path
            mark       packet, connection   hexadecimal, compared in the bits of mask
            state                           conntrack states
            unknown                         none: only text describes the match
  actions[] action, text, and the fields of the action:
            accept, drop, return
            jump, goto                      chain
            redirect, dnat, tproxy          port
            snat                            none: only text describes the translation
            tproxy-or-drop                  port, value, mask
            set-mark                        value, mask
            save-mark, restore-mark         between packet and connection
            set-zone                        zone, helper
            count, unknown
  routing   policies[]: family (ip, ip6), mark, mask (if not all bits of the mark are compared),
            table, priority: a policy rule, and the local default route by lo in its table
            loopbackAddresses[]: addresses added to lo
  time      with --watch, which prints one object a line: the time of the reading

apply       (Apply) outcome (created, unchanged, updated, replaced, skipped), namespace, backend
            (nft, legacy), moved (true if the other backend had rules of Sluice, which are removed),
            rules, sets, elements, routes (changes of routing), bytes, milliseconds; with legacy
            there are no sets, elements and bytes
            with --keep-established also kept: packets of older connections that the rules have not
            captured (REDIRECT: one for each connection that conntrack did not know; TPROXY: of an
            inbound connection all until the application answers)
            with --dry-run (DryRun): outcome (dry-run), would (the outcome without --dry-run),
            namespace, backend, ruleset (a RULESET), transaction[] (a line for each message, or with
            legacy the lines that iptables-restore would load; empty if unchanged), bytes
            with --run-validation: validation, the object of validate without version and kind
check       (Check) namespace, backend, equal, differences[]: kind (missing, extra, changed,
            reordered), where, want, got; if where names a set, want and got are the elements that
            are missing or extra
            foreign: the effect of rules of other owners, omitted if there are differences:
            bypasses[]: packets (a class), witness (a packet), desired, live (its outcomes), rule
                        (that decides), reason (if no rule decides), owner (of the rule: sluice,
                        nft, iptables-nft, iptables-legacy)
            more (true if there are more classes), unknown[] (the reasons why outcomes are unknown),
            exhausted (true if a limit was reached, or the rules could not be read)
explain     (Explanation, with --pod PodExplanation) packets[]: packet, outcome, alternatives[]
            (other possible outcomes), dependsOn[] (the conditions that select between them),
            assumed[] (properties of the host that the packet does not state, with assumed values),
            unknownAt[] (the rules with the unknown expressions that decide, as steps[]), delivery
            (of a packet that is assigned to a transparent listener: delivered, dropped, removed, which
            means that a bridge removes the assignment, or unknown), passes[]
            with --pod also, about the decision of the CNI plugin: pod, outcome (skip, redirect,
            ambient, undecided), reason, message, notes[]: kind, message; ruleset (a RULESET)
            outcome of a packet:
                      text, captured, dropped, rejected (the reply to the sender), redirect and
                      redirectLast (a port or the first and the last of several), toHost
                      (redirected, of a protocol without ports), dnat and dnatLast (ports),
                      dnatAddress and dnatAddressLast, snatAddress, snat (the translation if the
                      kernel selects the source), tproxy (a port), tproxyAddress, rerouted (to this
                      host by its mark), leavesLoopback (its mark routes it from lo to another
                      interface), untracked, zone, helper (of conntrack), mark, connectionMark,
                      undecided (the reason), unknownMarks (the reason why only the marks are
                      unknown)
            passes[]: hook, packet (as it enters), steps[]: family, table, chain, rule (from 1),
                      text, comment, stopped (the action at which the rule ended early); moreSteps
                      (true if not all are listed), notes[] (effects of a policy or of the kernel)
diff        (Diff) verdict (equivalent, different, cannot decide), left, right: name, notes[],
            undecided[], unreachable[] (chains)
            classes[]:   packets[] (field, values: all of them must hold), witness (a packet),
                         deviations[] (the known deviations that explain the difference), left,
                         right: outcome (of a packet, as of explain), where (the rule, policy or
                         fact of the kernel that decides, in words), rule (as a step of explain, if
                         a rule decides)
            more         true if there are more classes
            exhausted    the limit of time or memory that was reached
            unstated     the parameter that explains all differences and that the log does not state
            undecided[]: side (left, right), text, where, rule, witness; moreUndecided (true if not
                         all are listed)
            routing[]    differences as of check; notCompared[]
trace       one object a line: a TracedPacket for each packet, a TracedAnswer for each answer, and
            at the end a TraceSummary; each with pod, if --pod selects it
            (TracedPacket) time, packet (see rules explain), direction (in, out), protocol, from, to
            (before translation), uid, pid, process, container (of the sender), outcome (captured,
            not-captured, dropped), uncertain (a rule may have forged the outcome), message, path[]
            (the rules that it matched), listener (its address, or none), differences[] (from the
            model), notCompared (the reason), reproducer (a file),
            reproducerText (its content if it cannot be created)
            (TracedAnswer) time, protocol, from, to (of an earlier packet), answer (connected,
            refused, reset, answered, timed out), by (the destination after translation), mark and
            zone (of conntrack)
            (TraceSummary) packets, lost (events), differences, unanswered (connections),
            packetsByMessage (the number of packets by message), uncaptured[] (packets that were not
            captured, by sender and destination): message, from, uid, process, to, packets;
            uncapturedOthers (packets that were not captured and are not counted by sender)
validate    (Validation) namespace, outcome (works, works as far as checked, fails, captures
            nothing, not decided), notChecked[] (kinds of checks), running (a proxy), attempts,
            milliseconds, checks[]: name, kind, proves (false if it would be ok without rules too),
            packet (see rules explain), expected, found, status (ok, failed, not checked), reason,
            next
cleanup     (Cleanup) namespace, dryRun, removed[] (with dryRun: the objects that would be removed)
doctor      (Doctor) namespace, kernel, node (with --node), verdict (works, degraded, prevented),
            findings[]: topic, severity (ok, note, warning, problem), verdict (a sentence), next,
                        prevented (by the kernel or a missing permission)
status      (Status) node, agentVersion, time, ready, topics[]: name, state (ok, problem, unknown,
            off), facts[], next; pods, drifts, conflictingWriters (counts by state, kind and name),
            errors[]: first, last, count, level, message, error
version     (Version) release, commit, modified, go, platform
`
