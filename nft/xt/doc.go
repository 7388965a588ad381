// Package xt translates between the model and the matches and targets of xtables. The kernel
// defines their structures in linux/netfilter, linux/netfilter_ipv4 and linux/netfilter_ipv6.
// iptables-legacy uses these structures in its tables, and iptables-nft in the "match" and "target"
// expressions of its rules.
//
// An [Extension] is a match or target with its revision and structure. [DecodeMatch] and
// [DecodeTarget] convert an extension to matches and an action of the model. [EncodeMatches],
// [EncodeTarget] and [EncodeComment] do the reverse. [MatchEffect] returns the possible effects of
// an unsupported match.
//
//	extensions, err := xt.EncodeMatches(rules.TCP, []rules.Match{rules.MatchOwner{
//		IDs: rules.Singles[uint32](1337),
//	}})
//
// # Coverage
//
// The package decodes the matches and targets that the model can represent, in the revisions that
// iptables programs of the last fifteen years write. Every other extension or revision, and every
// unsupported option, decodes to [rules.Unknown]. The package encodes revisions that all supported
// kernels have; [Newer] returns newer revisions of a target. Numbers in the structures are in host
// byte order unless a comment specifies network byte order.
//
// # Conditions of the kernel
//
// The kernel (net/netfilter) rejects an extension with EINVAL unless these conditions hold:
//
//   - owner: the rule is reached from OUTPUT and POSTROUTING only, and the process that adds a rule
//     with a user or a group is in the user namespace that owns the network namespace.
//   - cgroup: the rule is reached from INPUT, OUTPUT and POSTROUTING only, and the cgroup exists.
//   - tcp and udp: the rule matches the protocol. multiport: the rule matches a protocol with
//     ports.
//   - TPROXY: the table is mangle, the rule is reached from PREROUTING only, and its protocol is
//     TCP or UDP.
//   - REDIRECT and DNAT: the table is nat, the rule is reached from PREROUTING and OUTPUT only.
//     SNAT: the table is nat, the rule is reached from POSTROUTING and INPUT only.
//   - CT: the table is raw.
//   - REJECT: the table is filter, and the protocol is TCP if the reply is a reset.
//
// A structure whose size, padded to 8 bytes, differs from the kernel's causes EINVAL too. An
// unsupported match or target causes ENOENT. conntrack, state, connmark, CONNMARK and CT (except CT
// that disables tracking) enable connection tracking in the namespace, as NAT does.
package xt
