package xt

import (
	"strings"

	"github.com/sluice-mesh/sluice/rules"
)

// reversePathKinds contains iptables' names of the flags of struct xt_rpfilter_info, from bit 0.
var reversePathKinds = [...]string{"loose", "validmark", "accept-local"}

// reversePathInvert is the flag that negates the match, which is the last flag.
const reversePathInvert = 1 << 3

// decodeReversePath decodes struct xt_rpfilter_info.
func decodeReversePath(info []byte) ([]rules.Match, bool) {
	if len(info) < 1 || info[0] >= reversePathInvert<<1 {
		return nil, false
	}
	kinds := namesOfBits(uint32(info[0]), reversePathKinds[:])
	return []rules.Match{rules.MatchReversePath{
		Not: info[0]&reversePathInvert != 0, Kind: strings.Join(kinds, " "),
	}}, true
}
