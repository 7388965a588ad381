// Package nftlist reads the output of nft list ruleset, as text or as JSON (libnftables-json(5)).
//
// The package reads text into the objects and statements of JSON. A compiler translates statements
// to the expressions of nf_tables to which nft translates them, including the conditions that nft
// adds, such as "meta l4proto tcp" before "tcp dport". Package nft decodes them like expressions of
// the kernel. The result is therefore equal to the result of [nft.ReadAll] for the same rules.
//
// Statements that the compiler does not support become [rules.Unknown], so that results that depend
// on them are undecided. This also applies to statements whose meaning the output does not show:
//
//   - Names of users, services and interfaces other than lo.
//   - Sets whose elements expire, in the output of nft -s, which does not show when they expire.
//   - Sets without elements, if no named set has elements, as in the output of nft -t.
//   - "tproxy to" without a port in text, which nft also prints if the port is a value of a map.
//   - Hours and dates, which depend on the time zone.
//   - "fib ... oif 1", which is an interface or, in the output of nft -n, an existing route.
//   - In an inet table, a rule with "reject with tcp reset", and the packets of the other family in
//     a rule with "meta l4proto icmp" or "ipv6-icmp". Such a rule may have a condition "meta
//     nfproto", which nft does not list.
//
// In a set, nft lists the interface name "a*" in the same way as all names that begin with "a". The
// package reads the latter. In JSON it lists the index 0 in the same way as an interface with the
// name "0". The package reads the former. A comparison of ct label with a set is not listed at all.
//
// The order of chains at the same position of a hook is unknown, and text may lack statements of
// iptables-nft. In text, a comment or log prefix that contains a quote and a line break cannot be
// distinguished from statements. In ip6 tables nft omits "ip6 nexthdr tcp" before "tcp dport". The
// package reads it as "meta l4proto tcp", which differs for packets with extension headers.
//
//	listing, err := nftlist.Parse("ruleset.nft", file)
package nftlist
