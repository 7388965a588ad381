package main

import (
	"bytes"

	"github.com/sluice-mesh/sluice/compat/nftjson"
)

// loadListing reads the output of nft -j list ruleset.
func (s *system) loadListing(path string) (*diffSide, error) {
	text, err := s.readFile(path)
	if err != nil {
		return nil, err
	}
	listing, err := nftjson.Parse(path, bytes.NewReader(text))
	if err != nil {
		return nil, err
	}
	side := &diffSide{
		name: path, undecided: listing.Undecided, isGuess: len(listing.Undecided) > 0,
		elsewhere: listing.Elsewhere,
	}
	side.Ruleset.Tables = listing.Tables
	return side, nil
}
