package nft

import (
	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/nft/xt"
	"github.com/sluice-mesh/sluice/rules"
)

// ipv4Protocol is the field that iptables-nft before 1.8.8 loads to match the transport protocol,
// instead of meta l4proto.
var ipv4Protocol = payload{unix.NFT_PAYLOAD_NETWORK_HEADER, 9, 1}

// decodeExtensionTarget decodes an xtables target. iptables-nft uses targets if nf_tables has no
// equivalent expression.
func (d *ruleDecoder) decodeExtensionTarget(a attributes) error {
	d.rule.XTables = true
	name := a.Text(unix.NFTA_TARGET_NAME)
	action := xt.DecodeTarget(d.family, xt.Extension{
		Name: name, Revision: a.Number(unix.NFTA_TARGET_REV), Data: a.Get(unix.NFTA_TARGET_INFO),
	})
	if action == rules.Action(rules.Count{}) {
		d.addNoEffect("-j "+name, a)
	} else {
		d.addAction(action)
	}
	return nil
}

// decodeExtensionMatch decodes an xtables match. iptables-nft uses matches if nf_tables has no
// equivalent expression.
func (d *ruleDecoder) decodeExtensionMatch(a attributes) error {
	d.rule.XTables = true
	matches := xt.DecodeMatch(&d.rule, d.family, xt.Extension{
		Name: a.Text(unix.NFTA_MATCH_NAME), Revision: a.Number(unix.NFTA_MATCH_REV),
		Data: a.Get(unix.NFTA_MATCH_INFO),
	})
	for _, m := range matches {
		d.addMatch(m)
	}
	return nil
}
