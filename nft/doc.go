// Package nft programs a [rules.Ruleset] into nf_tables over netlink and reads the kernel's state back into one.
//
// [Apply] compiles nothing and executes nothing: it encodes the ruleset into one batch of netlink messages, which the kernel
// accepts or refuses as a whole, and sends it through a socket that belongs to the pod's network namespace. [Read] decodes a
// complete dump; what the model has no word for becomes [rules.Unknown], and is never left out.
//
// Everything is safe for concurrent use, also from several processes in one namespace.
package nft
