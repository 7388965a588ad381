// Package xt translates between the model and the matches and targets of xtables. Both kinds of
// iptables use the kernel's structures for these (linux/netfilter/xt_*.h): iptables-legacy in its
// tables, iptables-nft in the "match" and "target" expressions of its rules.
//
// An [Extension] is a match or target with its revision and structure. [DecodeMatch] and
// [DecodeTarget] turn one into matches and an action of the model, [EncodeMatches],
// [EncodeTarget] and [EncodeComment] do the reverse. [MatchEffect] says what a match that is not
// decoded may do to a packet.
//
//	extensions, err := xt.EncodeMatches(rules.TCP, []rules.Match{rules.MatchOwner{
//		IDs: rules.Singles[uint32](1337),
//	}})
//
// # Coverage
//
// Decoded are the matches and targets that the model has words for, in the revisions that
// iptables programs of the last fifteen years write. Any other extension or revision, and any
// other use of a known one, decodes to [rules.Unknown], never to a guess. Encoded are the oldest
// revisions that suffice, which every kernel accepts; [Newer] returns newer ones. Numbers in the
// structures are in the machine's byte order unless a comment says network order.
//
// # Conditions of the kernel
//
// The kernel (net/netfilter) refuses an extension with EINVAL unless:
//
//   - owner: all packets that reach the rule are sent by this host (OUTPUT, POSTROUTING); and the
//     process that writes a rule with a user or a group is in the user namespace that owns the
//     network namespace.
//   - tcp and udp: the rule compares the protocol. multiport: it compares it with one that has
//     ports.
//   - TPROXY: the table is mangle, the rule is reached from PREROUTING only, and its protocol is
//     TCP or UDP.
//   - REDIRECT and DNAT: the table is nat, the rule is reached from PREROUTING and OUTPUT only.
//   - CT: the table is raw.
//   - REJECT: the table is filter, and its protocol is TCP where it answers with a reset.
//
// A structure of another size than the kernel's, padded to 8 bytes, is EINVAL too. A match or
// target that the kernel does not have is ENOENT. conntrack, connmark, CONNMARK and CT make the
// kernel track the connections of the namespace, as NAT does.
package xt
