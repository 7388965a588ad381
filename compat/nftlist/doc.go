// Package nftlist reads the output of nft list ruleset, as text or as JSON (libnftables-json(5)).
//
// The package translates text to the objects and statements that nft lists in JSON. A compiler
// translates the statements to the same expressions of nf_tables as nft does, including the
// conditions that nft adds, such as "meta l4proto tcp" before "tcp dport". Package nft decodes them
// like expressions of the kernel. For the same rules the result is therefore equal to the tables of
// [nft.ReadAll], with the exceptions below.
//
// Statements that the compiler does not support become [rules.Unknown], and results that depend on
// them are undecided. This also applies to statements whose meaning the output does not show:
//
//   - Names of users and services, and the names that nft lists for the indexes of interfaces (iif,
//     oif) other than lo.
//   - Sets whose elements expire, in the output of nft -s, which does not show when they expire.
//   - Sets without elements, if no named set has elements, as in the output of nft -t.
//   - "tproxy to" without a port in text, which nft also prints if the port is a value of a map.
//   - Hours and dates, which depend on the time zone.
//   - "fib ... oif 1", which compares with interface 1 (lo) or, in the output of nft -n, is the
//     condition that a route exists.
//   - Concatenations of a number in a part of a byte, such as tcp doff or ip version, in an
//     anonymous set, for which nft lists wrong values.
//   - In an inet table, the condition "meta nfproto" of a rule with "reject with tcp reset", "meta
//     l4proto icmp" or "meta l4proto ipv6-icmp", which nft does not list. A rule with reject
//     is undecided for all packets, and the other rules are undecided for packets of the family
//     to which the protocol does not belong.
//
// In a set, nft lists the interface name "a*" in the same way as all names that begin with "a". The
// package reads it as all these names. In JSON nft lists the index 0 in the same way as an
// interface with the name "0". The package reads it as the index. nft omits a comparison of ct
// label with a set, "ct l3proto" before a condition on a header, and the first condition of "meta
// l4proto ipv6-icmp meta l4proto { tcp, udp } th sport { 1, 2 }", with which the rule matches no
// packet: the package reads the rule without this condition. nft lists a negated comparison of
// adjacent fields, such as "@th,0,32 != 0x500051", as negated comparisons of each field, which
// match fewer packets. The package reads what is listed.
//
// The order of chains at the same position of a hook is unknown, and text may lack statements of
// iptables-nft. Text does not show where a name ends: a comment, a log prefix, or the name of an
// interface, a chain or a set can contain quotes, braces and line breaks, and look like statements,
// elements or chains. If others than the reader of the listing can choose names, use JSON. In ip6
// tables nft omits "ip6 nexthdr tcp" before "tcp dport". The package reads it as "meta l4proto
// tcp", which differs for packets with extension headers.
//
//	listing, err := nftlist.Parse("ruleset.nft", file)
package nftlist
