// Package save reads and writes rules as text in the format of iptables-save(8) and
// iptables-restore(8), and reads the log of an istio-init container, which holds such text. It is
// pure: text in, the model out, and the other way round.
//
// A rule becomes what it does. What the model has no word for is [rules.Unknown] with exactly the
// words that say it, never a guess, and with what it may do: other matches and targets, and names
// of users, services or hosts, since nothing is looked up. An unknown match that may do more than
// end the rule is one of the rule's actions, and the matches after it follow it as
// [rules.Require]. LOG, NFLOG, ULOG, TRACE, AUDIT, RATEEST, IDLETIMER and LED change nothing about
// a packet, so that such a rule only counts.
//
// Text that iptables-restore would refuse is a [SyntaxError].
//
// # Logs of Istio
//
// [ParseIstioLog] reads these formats, of which testdata has an example each. The versions are
// those of public logs and sources:
//
//   - headlines, commands and their output without levels, where the rules are what iptables-save
//     printed at the end: 1.4, in which each iptables command is a line, and 1.6 to 1.9, which have
//     "Writing following contents to rules file:";
//   - messages with a level, "Writing following contents to rules file:" and "Command output:":
//     1.11 to 1.13;
//   - messages with a level, "Running iptables-restore with the following input:" and "Command
//     output:": 1.20 and 1.21;
//   - messages with "Final iptables state": as of August 2026, of which recorded runs are tests.
//
// No log was at hand of 1.10, 1.14 to 1.19, and 1.22 and later; each of them should have the format
// before or after it. Versions before 1.3 ran a shell script, and are not read. The parameters that
// an older version lacks, or does not print, are in [IstioLog.Unstated].
package save
