package save

import (
	"strings"

	"github.com/sluice-mesh/sluice/rules"
)

// optionsOf parses a list of options. An option with N values is followed by N equals signs.
func optionsOf(list string) []optionKind {
	var options []optionKind
	for field := range strings.FieldsSeq(list) {
		name := strings.TrimRight(field, "=")
		options = append(options, optionKind{name: name, values: len(field) - len(name)})
	}
	return options
}

// An openKind is an extension that may have further options; see [extension.open]. Its options are
// in the format of optionsOf. Without a function match or target it is unknown to the model.
type openKind struct {
	name, options string
	match         func(*moduleReader) []rules.Match
	target        func(*moduleReader) rules.Action
}

// findOpenExtension returns the extension with the name, or nil.
func findOpenExtension(list []openKind, name string) *extension {
	for _, o := range list {
		if o.name != name {
			continue
		}
		return &extension{
			name: name, open: true, match: o.match, target: o.target, options: optionsOf(o.options),
		}
	}
	return nil
}

// openMatches contains further matches, with the options in their manual pages.
var openMatches = [...]openKind{
	{name: "recent", match: (*moduleReader).recent, options: `--set --rcheck --update --remove
		--reap --rttl --rsource --rdest --seconds= --hitcount= --name= --mask=`},
	{name: "limit", match: (*moduleReader).limit, options: "--limit= --limit-burst="},
	{
		name: "statistic", match: (*moduleReader).statistic,
		options: "--mode= --probability= --every= --packet=",
	},
	{name: "hashlimit", match: (*moduleReader).hashLimit, options: `--hashlimit=
		--hashlimit-upto= --hashlimit-above= --hashlimit-mode=
		--hashlimit-srcmask= --hashlimit-dstmask= --hashlimit-name= --hashlimit-burst=
		--hashlimit-htable-size= --hashlimit-htable-max= --hashlimit-htable-gcinterval=
		--hashlimit-htable-expire= --hashlimit-rate-interval= --hashlimit-rate-match`},
	{name: "quota", options: "--quota="},
	{name: "time", options: `--datestart= --datestop= --timestart= --timestop= --monthdays=
		--weekdays= --kerneltz --contiguous --utc --localtz`},
	{name: "string", options: "--from= --to= --algo= --string= --hex-string= --icase"},
	{name: "set", match: (*moduleReader).ipset, options: `--match-set== --set== --return-nomatch
		--update-counters --update-subcounters --packets-eq= --packets-lt= --packets-gt=
		--bytes-eq= --bytes-lt= --bytes-gt=`},
	{name: "rateest", match: (*moduleReader).rate, options: `--rateest= --rateest1= --rateest2=
		--rateest-delta --rateest-bps --rateest-pps --rateest-bps1= --rateest-pps1=
		--rateest-bps2= --rateest-pps2= --rateest-lt --rateest-gt --rateest-eq`},
	{name: "physdev", options: `--physdev-in= --physdev-out= --physdev-is-in --physdev-is-out
		--physdev-is-bridged`},
	{name: "policy", options: `--dir= --pol= --reqid= --spi= --proto= --mode= --tunnel-src=
		--tunnel-dst= --strict --next`},
	{name: "cgroup", match: (*moduleReader).cgroup, options: "--path= --cgroup="},
	{name: "connbytes", options: "--connbytes= --connbytes-dir= --connbytes-mode="},
	{name: "connlimit", options: `--connlimit-upto= --connlimit-above= --connlimit-mask=
		--connlimit-saddr --connlimit-daddr`},
	{name: "length", match: (*moduleReader).length, options: "--length="},
	{name: "mac", options: "--mac-source="},
	{name: "pkttype", options: "--pkt-type="},
	{name: "tos", match: (*moduleReader).tosMatch, options: "--tos="},
	{name: "dscp", match: (*moduleReader).dscpMatch, options: "--dscp= --dscp-class="},
	{
		name: "ttl", match: (*moduleReader).hops,
		options: "--ttl-eq= --ttl-lt= --ttl-gt= --ttl=",
	},
	{name: "hl", match: (*moduleReader).hops, options: "--hl-eq= --hl-lt= --hl-gt="},
	{name: "ecn", options: "--ecn-ip-ect= --ecn-tcp-cwr --ecn-tcp-ece"}, //nolint:misspell // ECT
	{name: "u32", options: "--u32="},
	{name: "bpf", options: "--bytecode= --object-pinned="},
	{name: "realm", options: "--realm="},
	{name: "helper", options: "--helper="},
	{name: "nfacct", match: (*moduleReader).account, options: "--nfacct-name="},
	{name: "osf", options: "--genre= --ttl= --log="},
	{name: "cpu", options: "--cpu="},
	{name: "devgroup", options: "--src-group= --dst-group="},
	{name: "esp", options: "--espspi="},
	{name: "ah", options: "--ahspi= --ahlen= --ahres"},
	{name: "ipcomp", options: "--ipcompspi= --compres"},
	{name: "tcpmss", options: "--mss="},
	{name: "ipvs", options: "--ipvs --vproto= --vaddr= --vport= --vdir= --vmethod= --vportctl="},
	{name: "l2tp", options: "--tid= --sid= --pversion= --type="},
	{name: "frag", options: "--fragid= --fraglen= --fragres --fragfirst --fragmore --fraglast"},
	{name: "hbh", options: "--hbh-len= --hbh-opts="},
	{name: "dst", options: "--dst-len= --dst-opts="},
	{name: "rt", options: `--rt-type= --rt-segsleft= --rt-len= --rt-0-addrs= --rt-0-res
		--rt-0-not-strict`},
	{name: "mh", options: "--mh-type="},
	{name: "ipv6header", options: "--header= --soft"},
	{name: "cluster", options: `--cluster-total-nodes= --cluster-local-node=
		--cluster-local-nodemask= --cluster-hash-seed=`},
	{name: "connlabel", match: (*moduleReader).label, options: "--label= --set"},
}

// openMatch is the extension for a match whose name is unknown.
var openMatch = extension{open: true, match: (*moduleReader).unknownMatch}

func (r *moduleReader) unknownMatch() []rules.Match {
	r.isUnknown = true
	return nil
}

// openTargets contains further targets, with the options in their manual pages.
var openTargets = [...]openKind{
	{name: "LOG", target: (*moduleReader).noAction, options: `--log-level= --log-prefix=
		--log-tcp-sequence --log-tcp-options --log-ip-options --log-uid --log-macdecode`},
	{name: "NFLOG", target: (*moduleReader).noAction, options: `--nflog-group= --nflog-range=
		--nflog-size= --nflog-threshold= --nflog-prefix=`},
	{
		name: "ULOG", target: (*moduleReader).noAction,
		options: "--ulog-nlgroup= --ulog-cprange= --ulog-qthreshold= --ulog-prefix=",
	},
	{name: "TRACE", target: (*moduleReader).noAction, options: ""},
	{name: "AUDIT", target: (*moduleReader).noAction, options: "--type="},
	{
		name: "RATEEST", target: (*moduleReader).rateEstimator,
		options: "--rateest-name= --rateest-interval= --rateest-ewmalog=",
	},
	{name: "IDLETIMER", target: (*moduleReader).noAction, options: "--timeout= --label= --alarm"},
	{
		name: "LED", target: (*moduleReader).noAction,
		options: "--led-trigger-id= --led-delay= --led-always-blink",
	},
	{
		name: "SNAT", target: (*moduleReader).snat,
		options: "--to-source= --random --random-fully --persistent",
	},
	{
		name: "MASQUERADE", target: (*moduleReader).masquerade,
		options: "--to-ports= --random --random-fully",
	},
	{name: "NETMAP", options: "--to="},
	{name: "SET", target: (*moduleReader).changeSet, options: `--add-set== --del-set== --map-set==
		--timeout= --exist --map-mark --map-prio --map-queue`},
	{name: "TEE", options: "--gateway= --oif="},
	{name: "NFQUEUE", options: "--queue-num= --queue-balance= --queue-bypass --queue-cpu-fanout"},
	{name: "SECMARK", options: "--selctx="},
	{name: "CONNSECMARK", options: "--save --restore"},
	{name: "CLASSIFY", target: (*moduleReader).classify, options: "--set-class="},
	{
		name: "DSCP", target: (*moduleReader).dscp,
		options: "--set-dscp= --set-dscp-class=",
	},
	{
		name: "TOS", target: (*moduleReader).tos,
		options: "--set-tos= --and-tos= --or-tos= --xor-tos=",
	},
	{
		name: "TTL", target: (*moduleReader).hopLimit,
		options: "--ttl-set= --ttl-dec= --ttl-inc=",
	},
	{name: "HL", target: (*moduleReader).hopLimit, options: "--hl-set= --hl-dec= --hl-inc="},
	{
		name: "TCPMSS", target: (*moduleReader).segmentSize,
		options: "--set-mss= --clamp-mss-to-pmtu",
	},
	{name: "CHECKSUM", target: (*moduleReader).checksum, options: "--checksum-fill"},
	{name: "TCPOPTSTRIP", options: "--strip-options="},
	{name: "SYNPROXY", options: "--sack-perm --timestamp --ecn --wscale= --mss="},
	{name: "ECN", options: "--ecn-tcp-remove"},
	{name: "SNPT", options: "--src-pfx= --dst-pfx="},
	{name: "DNPT", options: "--src-pfx= --dst-pfx="},
}

// openTarget is the extension for a target whose name is unknown.
var openTarget = extension{open: true, target: (*moduleReader).unknownTarget}

func (r *moduleReader) unknownTarget() rules.Action {
	r.isUnknown = true
	return nil
}

// noAction parses a target without effect on packets, such as LOG.
func (r *moduleReader) noAction() rules.Action { return nil }
