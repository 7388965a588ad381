package main

import (
	"bytes"

	"github.com/sluice-mesh/sluice/compat/nftlist"
	"github.com/sluice-mesh/sluice/rules"
)

// loadListing reads the output of nft list ruleset, as text or as JSON.
func (s *system) loadListing(path string) (*diffSide, error) {
	text, err := s.readFile(path)
	if err != nil {
		return nil, err
	}
	listing, err := nftlist.Parse(sourceName(path), bytes.NewReader(text))
	if err != nil {
		return nil, err
	}
	side := &diffSide{
		name: sourceName(path), undecided: listing.Undecided, isGuess: len(listing.Undecided) > 0,
		unmodeledChains: listing.UnmodeledChains, texts: map[rules.Family]sourceText{},
	}
	source := sourceText{sourceName(path), text}
	for _, family := range []rules.Family{rules.IPv4, rules.IPv6, rules.Inet} {
		side.texts[family] = source
	}
	side.Ruleset.Tables = listing.Tables
	return side, nil
}
