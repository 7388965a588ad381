// Package nftjson reads the output of nft -j list ruleset (libnftables-json(5)).
//
// Statements that the package does not know become [rules.Unknown], so that what depends on them is
// undecided. The output does not state everything: the order of chains at the same place of a hook
// is not known, and the names of users are not resolved.
//
//	listing, err := nftjson.Parse("ruleset.json", file)
package nftjson
