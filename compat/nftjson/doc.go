// Package nftjson reads the output of nft -j list ruleset (libnftables-json(5)).
//
// Unsupported statements become [rules.Unknown], so that results that depend on them are undecided.
// The output is not complete: the order of chains at the same position of a hook is unknown, and
// names of users are not resolved.
//
//	listing, err := nftjson.Parse("ruleset.json", file)
package nftjson
