package save

import (
	"sync"

	"github.com/sluice-mesh/sluice/nft/xt"
	"github.com/sluice-mesh/sluice/rules"
)

// This file lists the targets that the package knows. The functions that parse the targets are in
// this file and in the files target_*.go. Their names begin with target, or end with Text. Method
// addAction of rulePrinter writes targets.

// knownTargets contains the known targets by name, with their options from iptables-extensions(8).
var knownTargets = sync.OnceValue(func() map[string]*extension { return indexed(targetList[:]) })

var targetList = [...]extension{
	{name: "ACCEPT", target: targetAccept, allListed: true},
	{name: "DROP", target: targetDrop, allListed: true},
	{name: "RETURN", target: targetReturn, allListed: true},
	{name: "MARK", target: (*moduleReader).targetMark, allListed: true, options: `
		--set-xmark= --set-mark= --and-mark= --or-mark= --xor-mark=`},
	{name: "CONNMARK", target: (*moduleReader).targetConnmark, allListed: true, options: `
		--set-xmark= --set-mark= --and-mark= --or-mark= --xor-mark= --save-mark --restore-mark
		--nfmask= --ctmask= --mask= --left-shift-mark= --right-shift-mark=`},
	{name: "CT", target: (*moduleReader).targetCT, allListed: true, options: `
		--zone= --zone-orig= --zone-reply= --notrack --helper= --timeout= --ctevents=
		--expevents=`},
	{name: "NOTRACK", target: targetNotrack, allListed: true},
	{name: "TRACE", target: (*moduleReader).targetWithoutEffect, allListed: true},
	{name: "REJECT", target: (*moduleReader).targetReject, allListed: true, options: `
		--reject-with=`},
	{name: "TPROXY", target: (*moduleReader).targetTProxy, allListed: true, options: `
		--on-port= --on-ip= --tproxy-mark=`},
	{name: "REDIRECT", target: (*moduleReader).targetRedirect, allListed: true, options: `
		--to-ports= --random --random-fully`},
	{name: "DNAT", target: (*moduleReader).targetDNAT, allListed: true, options: `
		--to-destination= --random --persistent`},
	{name: "LOG", target: (*moduleReader).targetWithoutEffect, options: `
		--log-level= --log-prefix= --log-tcp-sequence --log-tcp-options --log-ip-options
		--log-uid --log-macdecode`},
	{name: "NFLOG", target: (*moduleReader).targetNFLOG, options: `
		--nflog-group= --nflog-range= --nflog-size= --nflog-threshold= --nflog-prefix=`},
	{name: "ULOG", target: (*moduleReader).targetWithoutEffect, options: `
		--ulog-nlgroup= --ulog-cprange= --ulog-qthreshold= --ulog-prefix=`},
	{name: "AUDIT", target: (*moduleReader).targetWithoutEffect, options: "--type="},
	{name: "RATEEST", target: (*moduleReader).targetRateest, options: `
		--rateest-name= --rateest-interval= --rateest-ewmalog=`},
	{name: "IDLETIMER", target: (*moduleReader).targetWithoutEffect, options: `
		--timeout= --label= --alarm`},
	{name: "LED", target: (*moduleReader).targetWithoutEffect, options: `
		--led-trigger-id= --led-delay= --led-always-blink`},
	{name: "SNAT", target: (*moduleReader).targetSNAT, options: `
		--to-source= --random --random-fully --persistent`},
	{name: "MASQUERADE", target: (*moduleReader).targetMasquerade, options: `
		--to-ports= --random --random-fully`},
	{name: "NETMAP", text: (*moduleReader).netmapText, options: "--to="},
	{name: "SET", target: (*moduleReader).targetSet, options: `
		--add-set== --del-set== --map-set== --timeout= --exist --map-mark --map-prio --map-queue`},
	{name: "TEE", text: (*moduleReader).teeText, options: "--gateway= --oif="},
	{name: "NFQUEUE", text: (*moduleReader).queueText, options: `
		--queue-num= --queue-balance= --queue-bypass --queue-cpu-fanout`},
	{name: "SECMARK", options: "--selctx="},
	{name: "CONNSECMARK", options: "--save --restore"},
	{name: "CLASSIFY", target: (*moduleReader).targetClassify, options: "--set-class="},
	{name: "DSCP", target: (*moduleReader).targetDSCP, options: "--set-dscp= --set-dscp-class="},
	{name: "TOS", target: (*moduleReader).targetTOS, options: `
		--set-tos= --and-tos= --or-tos= --xor-tos=`},
	{name: "TTL", target: (*moduleReader).targetHopLimit, options: `
		--ttl-set= --ttl-dec= --ttl-inc=`},
	{name: "HL", target: (*moduleReader).targetHopLimit, options: "--hl-set= --hl-dec= --hl-inc="},
	{name: "TCPMSS", target: (*moduleReader).targetTCPMSS, options: `
		--set-mss= --clamp-mss-to-pmtu`},
	{name: "CHECKSUM", target: (*moduleReader).targetChecksum, options: "--checksum-fill"},
	{name: "TCPOPTSTRIP", options: "--strip-options="},
	{name: "SYNPROXY", options: "--sack-perm --timestamp --ecn --wscale= --mss="},
	{name: "ECN", options: "--ecn-tcp-remove"},
	{name: "SNPT", options: "--src-pfx= --dst-pfx="},
	{name: "DNPT", options: "--src-pfx= --dst-pfx="},
}

// targetWithoutEffect parses a target that does not affect packets, such as LOG.
func (r *moduleReader) targetWithoutEffect() rules.Action { return xt.NoEffect(r.name) }

// targetNFLOG parses the target NFLOG.
func (r *moduleReader) targetNFLOG() rules.Action {
	group, _ := r.numberOption("--nflog-group", 16) // the default is 0
	return xt.LogToGroup(uint16(group))
}

func targetAccept(*moduleReader) rules.Action  { return rules.Accept }
func targetDrop(*moduleReader) rules.Action    { return rules.Drop }
func targetReturn(*moduleReader) rules.Action  { return rules.Return }
func targetNotrack(*moduleReader) rules.Action { return rules.Notrack{} }
