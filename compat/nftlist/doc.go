// Package nftlist reads the output of nft list ruleset, as text or as JSON (libnftables-json(5)).
//
// Text is read into the objects and statements of JSON, which one mapping decodes. Unsupported
// statements become [rules.Unknown], so that results that depend on them are undecided. The output
// is not complete: the order of chains at the same position of a hook is unknown, names of users are
// not resolved, and text of iptables-nft may lack statements. In text a comment or log prefix that
// contains a quote and a line break cannot be told from statements.
//
//	listing, err := nftlist.Parse("ruleset.nft", file)
package nftlist
