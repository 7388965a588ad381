// Package nftlist reads the output of nft list ruleset, as text or as JSON (libnftables-json(5)).
//
// The package translates text to the objects and statements that nft lists in JSON. A compiler
// translates the statements to the same expressions of nf_tables as nft does, including the
// conditions that nft adds, such as "meta l4proto tcp" before "tcp dport". Package nft decodes
// these expressions like expressions that it reads from the kernel. For the same rules the result
// is therefore equal to the tables of [nft.ReadAll], with the exceptions below.
//
// Statements that the compiler does not support become [rules.Unknown], and results that depend on
// them are undecided. This also applies to statements whose meaning the output does not show:
//
//   - Names of users and services, and the names that nft lists for the indexes of interfaces (iif,
//     oif) other than lo.
//   - Sets that rules change and whose elements expire, in the output of nft -s, which does not
//     show when they expire.
//   - Sets without elements, if no named set has elements, as in the output of nft -t.
//   - "tproxy to" without a port in text, which nft also prints if the port is a value of a map.
//   - Hours and dates, which depend on the time zone.
//   - "fib ... oif 1", which compares with interface 1 (lo) or, in the output of nft -n, is the
//     condition that a route exists.
//   - Concatenations of a number in a part of a byte, such as tcp doff or ip version, in an
//     anonymous set, for which nft lists wrong values.
//   - In an inet table, rules with "reject with tcp reset", "ct protocol", "meta l4proto icmp" or
//     "meta l4proto ipv6-icmp", because nft does not list a condition "meta nfproto" before these
//     statements. A rule with icmp is undecided only for IPv6 packets, and a rule with ipv6-icmp
//     only for IPv4 packets.
//   - Conditions on an option of TCP, because nft does not list a condition on the protocol before
//     them: "ip protocol" and "ip6 nexthdr", unless the table or another condition limits the rule
//     to IPv4, and "meta l4proto" before the condition that the option is missing.
//
// In a set, nft lists the interface name "a*" in the same way as all names that begin with "a". The
// package reads it as all these names. In JSON nft lists the index 0 in the same way as an
// interface with the name "0". The package reads it as the index. nft lists a negated comparison of
// adjacent fields, such as "@th,0,32 != 0x500051", as negated comparisons of each field, which
// match fewer packets. The package reads the listed comparisons.
//
// nft also omits the following conditions. The package reads the rule without them.
//
//   - A comparison of ct label with a set.
//   - "ct l3proto", "ct protocol", "ether type" and "meta iiftype" before a condition on a header,
//     "meta nfproto" before an omitted "ct protocol", and "ct l3proto" before "meta l4proto". For
//     example, in an inet table nft lists "meta nfproto ipv4 ct protocol tcp th dport 80" in the
//     same way as "tcp dport 80".
//   - "ip protocol tcp" before "tcp option maxseg size set" in an inet table.
//   - Conditions with which a rule matches no packet, such as the first one of "meta l4proto
//     ipv6-icmp meta l4proto { tcp, udp } th sport { 1, 2 }".
//
// In an inet table nft lists "meta l4proto ipv6-icmp icmpv6 type 128" in the same way as "icmpv6
// type 128", which does not match IPv4 packets. The package reads the listed condition. The same
// applies to icmp.
//
// The order of chains at the same position of a hook is unknown, and text may lack statements of
// iptables-nft. In ip6 tables nft omits "ip6 nexthdr tcp" before "tcp dport". The package reads it
// as "meta l4proto tcp", which differs for packets with extension headers.
//
// In JSON, an element that the type of its set does not allow is an error if the type consists of
// addresses and ports. Host names, which nft -N lists, are such elements.
//
// Text does not show where a name ends: a comment, a log prefix, or the name of an interface, a
// chain or a set can contain quotes, braces and line breaks, and look like statements, elements or
// chains. Use JSON if somebody else can choose names.
//
//	listing, err := nftlist.Parse("ruleset.nft", file)
package nftlist
