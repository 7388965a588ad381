// Package save reads and writes rules in the text format of iptables-save(8) and
// iptables-restore(8), and reads the log of an istio-init container, which contains such text. It
// makes no system calls.
//
//	tables, err := save.Parse(rules.IPv4, "rules.v4", file)
//	err = save.Print(os.Stdout, tables)
//
// Everything that the model cannot represent becomes [rules.Unknown] with the exact words of the
// text and with its possible effect: other matches and targets, and names of users, services or
// hosts, because nothing is looked up. An unknown match with a possible side effect is an action of
// the rule, and the matches after it follow it as [rules.Require]. LOG, NFLOG, ULOG, TRACE, AUDIT,
// RATEEST, IDLETIMER and LED do not change packets, so that such a rule only counts.
//
// Text that iptables-restore would reject is a [SyntaxError].
//
// # Logs of Istio
//
// [ParseIstioLog] reads the following formats; testdata has an example of each. The versions are
// those of public logs and sources:
//
//   - headings, commands and their output without levels, with the rules as iptables-save printed
//     them at the end: 1.4, in which each iptables command is a line, and 1.6 to 1.9, with "Writing
//     following contents to rules file:";
//   - messages with a level, "Writing following contents to rules file:" and "Command output:":
//     1.11 to 1.13;
//   - messages with a level, "Running iptables-restore with the following input:" and "Command
//     output:": 1.20 and 1.21;
//   - messages with "Final iptables state": as of August 2026, tested with recorded runs.
//
// No logs were available of 1.10, 1.14 to 1.19, and 1.22 and later. They should have the previous
// or the next format. Versions before 1.3 ran a shell script, and are not supported.
// [IstioLog.Unstated] contains the parameters that an older version lacks or does not print.
package save
