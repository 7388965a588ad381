// Package foreign determines the effect of foreign rules in a network namespace on the traffic that
// Sluice's ruleset captures: the packets that bypass the proxy, the deciding rule and its owner.
//
// It uses [diff.Bypass] to compare the ruleset alone with all live rules of the namespace, of every
// backend and table, for all packets that the ruleset captures. Foreign rules that drop packets, or
// capture more, cause no bypass. An undecidable effect is unknown, with the reason.
package foreign
