package nft

import (
	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/nft/xt"
)

// ipv4Protocol is where iptables-nft looks for the transport protocol before 1.8.8, instead of asking for meta l4proto.
var ipv4Protocol = payload{unix.NFT_PAYLOAD_NETWORK_HEADER, 9, 1}

// extension adds a match or target of xtables, which iptables-nft uses for what it has no expression of nf_tables for.
func (d *ruleDecoder) extension(target bool, a attributes) {
	if target {
		d.act(xt.Target(a.text(unix.NFTA_TARGET_NAME), a.number(unix.NFTA_TARGET_REV), a.get(unix.NFTA_TARGET_INFO)))
		return
	}
	matches := xt.Match(a.text(unix.NFTA_MATCH_NAME), a.number(unix.NFTA_MATCH_REV), a.get(unix.NFTA_MATCH_INFO))
	d.rule.Matches = append(d.rule.Matches, matches...)
}
