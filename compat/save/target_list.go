package save

import "github.com/sluice-mesh/sluice/rules"

// This file lists the targets that the package knows. The functions that parse the targets are in
// this file and in the files target_*.go, and their names begin with target. The method addAction
// of rulePrinter writes the targets.

// targetExtensions contains the targets that accept only the listed options.
var targetExtensions = []extension{
	{name: "ACCEPT", target: targetAccept},
	{name: "DROP", target: targetDrop},
	{name: "RETURN", target: targetReturn},
	{name: "MARK", target: (*moduleReader).targetMark, options: []optionKind{
		{"--set-xmark", "", 1},
		{"--set-mark", "", 1},
		{"--and-mark", "", 1},
		{"--or-mark", "", 1},
		{"--xor-mark", "", 1},
	}},
	{name: "CONNMARK", target: (*moduleReader).targetConnmark, options: []optionKind{
		{"--set-xmark", "", 1},
		{"--set-mark", "", 1},
		{"--and-mark", "", 1},
		{"--or-mark", "", 1},
		{"--xor-mark", "", 1},
		{"--save-mark", "", 0},
		{"--restore-mark", "", 0},
		{"--nfmask", "", 1},
		{"--ctmask", "", 1},
		{"--mask", "", 1},
		{"--left-shift-mark", "", 1},
		{"--right-shift-mark", "", 1},
	}},
	{name: "CT", target: (*moduleReader).targetCT, options: []optionKind{
		{"--zone", "", 1},
		{"--zone-orig", "", 1},
		{"--zone-reply", "", 1},
		{"--notrack", "", 0},
		{"--helper", "", 1},
		{"--timeout", "", 1},
		{"--ctevents", "", 1},
		{"--expevents", "", 1},
	}},
	{name: "NOTRACK", target: targetNotrack},
	{name: "TRACE", target: (*moduleReader).targetWithoutEffect},
	{name: "REJECT", target: (*moduleReader).targetReject, options: []optionKind{
		{"--reject-with", "", 1},
	}},
	{name: "TPROXY", target: (*moduleReader).targetTProxy, options: []optionKind{
		{"--on-port", "", 1}, {"--on-ip", "", 1}, {"--tproxy-mark", "", 1},
	}},
	{name: "REDIRECT", target: (*moduleReader).targetRedirect, options: []optionKind{
		{"--to-ports", "", 1}, {"--random", "", 0}, {"--random-fully", "", 0},
	}},
	{name: "DNAT", target: (*moduleReader).targetDNAT, options: []optionKind{
		{"--to-destination", "", 1}, {"--random", "", 0}, {"--persistent", "", 0},
	}},
}

// openTargets contains the other targets, with their options from iptables-extensions(8). They may
// have further options.
var openTargets = [...]openExtension{
	{name: "LOG", target: (*moduleReader).targetWithoutEffect, options: `--log-level= --log-prefix=
		--log-tcp-sequence --log-tcp-options --log-ip-options --log-uid --log-macdecode`},
	{name: "NFLOG", target: (*moduleReader).targetWithoutEffect, options: `--nflog-group=
		--nflog-range= --nflog-size= --nflog-threshold= --nflog-prefix=`},
	{
		name: "ULOG", target: (*moduleReader).targetWithoutEffect,
		options: "--ulog-nlgroup= --ulog-cprange= --ulog-qthreshold= --ulog-prefix=",
	},
	{name: "AUDIT", target: (*moduleReader).targetWithoutEffect, options: "--type="},
	{
		name: "RATEEST", target: (*moduleReader).targetRateest,
		options: "--rateest-name= --rateest-interval= --rateest-ewmalog=",
	},
	{
		name: "IDLETIMER", target: (*moduleReader).targetWithoutEffect,
		options: "--timeout= --label= --alarm",
	},
	{
		name: "LED", target: (*moduleReader).targetWithoutEffect,
		options: "--led-trigger-id= --led-delay= --led-always-blink",
	},
	{
		name: "SNAT", target: (*moduleReader).targetSNAT,
		options: "--to-source= --random --random-fully --persistent",
	},
	{
		name: "MASQUERADE", target: (*moduleReader).targetMasquerade,
		options: "--to-ports= --random --random-fully",
	},
	{name: "NETMAP", target: (*moduleReader).targetNETMAP, options: "--to="},
	{name: "SET", target: (*moduleReader).targetSet, options: `--add-set== --del-set== --map-set==
		--timeout= --exist --map-mark --map-prio --map-queue`},
	{name: "TEE", target: (*moduleReader).targetTEE, options: "--gateway= --oif="},
	{
		name: "NFQUEUE", target: (*moduleReader).targetQueue,
		options: "--queue-num= --queue-balance= --queue-bypass --queue-cpu-fanout",
	},
	{name: "SECMARK", options: "--selctx="},
	{name: "CONNSECMARK", options: "--save --restore"},
	{name: "CLASSIFY", target: (*moduleReader).targetClassify, options: "--set-class="},
	{
		name: "DSCP", target: (*moduleReader).targetDSCP,
		options: "--set-dscp= --set-dscp-class=",
	},
	{
		name: "TOS", target: (*moduleReader).targetTOS,
		options: "--set-tos= --and-tos= --or-tos= --xor-tos=",
	},
	{
		name: "TTL", target: (*moduleReader).targetHopLimit,
		options: "--ttl-set= --ttl-dec= --ttl-inc=",
	},
	{name: "HL", target: (*moduleReader).targetHopLimit, options: "--hl-set= --hl-dec= --hl-inc="},
	{
		name: "TCPMSS", target: (*moduleReader).targetTCPMSS,
		options: "--set-mss= --clamp-mss-to-pmtu",
	},
	{name: "CHECKSUM", target: (*moduleReader).targetChecksum, options: "--checksum-fill"},
	{name: "TCPOPTSTRIP", options: "--strip-options="},
	{name: "SYNPROXY", options: "--sack-perm --timestamp --ecn --wscale= --mss="},
	{name: "ECN", options: "--ecn-tcp-remove"},
	{name: "SNPT", options: "--src-pfx= --dst-pfx="},
	{name: "DNPT", options: "--src-pfx= --dst-pfx="},
}

// openTarget is the extension for a target whose name is unknown.
var openTarget = extension{open: true, target: (*moduleReader).unknownTarget}

// unknownTarget records that the model does not represent the target.
func (r *moduleReader) unknownTarget() rules.Action {
	r.isUnknown = true
	return nil
}

// targetWithoutEffect parses a target without effect on packets, such as LOG.
func (r *moduleReader) targetWithoutEffect() rules.Action { return nil }

func targetAccept(*moduleReader) rules.Action  { return rules.Accept }
func targetDrop(*moduleReader) rules.Action    { return rules.Drop }
func targetReturn(*moduleReader) rules.Action  { return rules.Return }
func targetNotrack(*moduleReader) rules.Action { return rules.Notrack{} }
