// Package nftlist reads the output of nft list ruleset, as text or as JSON (libnftables-json(5)).
//
// Text is read into the objects and statements of JSON. A compiler translates statements to the
// expressions of nf_tables that nft makes of them, including the conditions that nft adds, such as
// meta l4proto tcp before tcp dport. Package nft decodes them like expressions of the kernel, so
// that a listing is read as what [nft.ReadAll] reads of the same rules.
//
// Statements that the compiler does not support become [rules.Unknown], so that results that depend
// on them are undecided. So do statements whose meaning the output does not state:
//
//   - names of users, services and interfaces other than lo
//   - when elements expire, in nft -s
//   - whether fib ... oif 1 is an interface or, in nft -n, means that a route exists
//   - in an inet table, whether a rule with reject with tcp reset, or packets of the other family in a
//     rule with meta l4proto icmp or ipv6-icmp, have the condition meta nfproto, which nft omits
//
// The order of chains at the same position of a hook is unknown, and text of iptables-nft may lack
// statements. In text a comment or log prefix that contains a quote and a line break cannot be told
// from statements. In ip6 tables nft omits ip6 nexthdr tcp before tcp dport: it is read as meta
// l4proto tcp, which differs for packets with extension headers.
//
//	listing, err := nftlist.Parse("ruleset.nft", file)
package nftlist
