// Package save reads and writes rules in the text format of iptables-save(8) and
// iptables-restore(8), and reads the log of an istio-init container, which contains such text. It
// makes no system calls.
//
//	tables, err := save.Parse(rules.IPv4, "rules.v4", file)
//	err = save.Print(os.Stdout, tables)
//
// A match or target that the model cannot represent becomes [rules.Unknown], with its text and its
// possible effect. A match or target with the name of a user, a service or a host is unknown too,
// because the package does not look up names. An unknown match with a possible side effect becomes
// an action of the rule, and the matches after it follow as [rules.Require]. A rule with the target
// LOG, NFLOG, ULOG, TRACE, AUDIT, IDLETIMER or LED has the action [rules.NoEffect], because these
// targets change neither packets nor a state that a match reads.
//
// The options of matches and targets may be abbreviated as in iptables, but not the options that
// every rule may have, such as --destination. A word whose meaning is not certain, because it
// follows a match or target that may have further options, makes this match or target unknown, with
// any effect.
//
// [Parse] returns a [SyntaxError] for a text that iptables-restore would reject, except in these
// cases:
//
//   - The options of an unknown match or target are invalid.
//   - Chains jump to each other in a loop.
//   - The kernel rejects the rule, for example because the target is not allowed in the table.
//   - A rule of table nat has the target DROP.
//   - -D names a rule differently than -A, for example with its matches in another order or with
//     other options of LOG.
//
// match_list.go lists the matches, and target_list.go lists the targets. The file of a match or
// target, such as match_port.go or target_nat.go, contains both the parser and the printer.
//
// # Logs of Istio
//
// [ParseIstioLog] reads the following formats. testdata contains an example of each. Public logs or
// sources exist for the listed versions:
//
//   - 1.4 and 1.6 to 1.9: headings, commands and their output, without levels. The rules are the
//     output of iptables-save at the end. 1.4 prints each iptables command in a line, and the later
//     versions print "Writing following contents to rules file:".
//   - 1.11 to 1.13: messages with a level, "Writing following contents to rules file:" and "Command
//     output:".
//   - 1.20 and 1.21: messages with a level, "Running iptables-restore with the following input:"
//     and "Command output:".
//   - The development version of August 2026: messages with "Final iptables state", tested with
//     recorded runs.
//
// Other versions since 1.3 should have the format of the previous or the next version in this list.
// No logs of these versions were available. Versions before 1.3 ran a shell script, and are not
// supported. [IstioLog.Unstated] names the parameters that the log does not contain.
package save
