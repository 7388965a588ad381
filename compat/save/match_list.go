package save

import "github.com/sluice-mesh/sluice/rules"

// This file lists the matches that the package knows. The methods that parse the matches are in the
// files match_*.go, and their names begin with match. For a match that the model represents, a
// method of rulePrinter in the same file writes the match; see addModuleMatch.

// matchExtensions contains the matches that accept only the listed options.
var matchExtensions = []extension{
	{name: "tcp", match: (*moduleReader).matchTCP, options: []optionKind{
		{"--dport", "--destination-port", 1},
		{"--sport", "--source-port", 1},
		{"--tcp-flags", "", 2},
		{"--syn", "", 0},
		{"--tcp-option", "", 1},
	}},
	{name: "udp", match: (*moduleReader).matchUDP, options: []optionKind{
		{"--dport", "--destination-port", 1}, {"--sport", "--source-port", 1},
	}},
	{name: "sctp", match: (*moduleReader).matchSCTP, options: []optionKind{
		{"--dport", "--destination-port", 1},
		{"--sport", "--source-port", 1},
		{"--chunk-types", "", 2},
	}},
	{name: "dccp", match: (*moduleReader).matchDCCP, options: []optionKind{
		{"--dport", "--destination-port", 1},
		{"--sport", "--source-port", 1},
		{"--dccp-types", "", 1},
		{"--dccp-option", "", 1},
	}},
	{name: "multiport", match: (*moduleReader).matchMultiport, options: []optionKind{
		{"--sports", "--source-ports", 1},
		{"--dports", "--destination-ports", 1},
		{"--ports", "--port", 1},
	}},
	{name: "mark", match: (*moduleReader).matchMark, options: []optionKind{{"--mark", "", 1}}},
	{
		name: "connmark", match: (*moduleReader).matchConnmark,
		options: []optionKind{{"--mark", "", 1}},
	},
	{name: "owner", match: (*moduleReader).matchOwner, options: []optionKind{
		{"--uid-owner", "", 1},
		{"--gid-owner", "", 1},
		{"--socket-exists", "", 0},
		{"--suppl-groups", "", 0},
	}},
	{name: "conntrack", match: (*moduleReader).matchConntrack, options: []optionKind{
		{"--ctstate", "", 1},
		{"--ctproto", "", 1},
		{"--ctstatus", "", 1},
		{"--ctexpire", "", 1},
		{"--ctdir", "", 1},
		{"--ctorigsrc", "", 1},
		{"--ctorigdst", "", 1},
		{"--ctreplsrc", "", 1},
		{"--ctrepldst", "", 1},
		{"--ctorigsrcport", "", 1},
		{"--ctorigdstport", "", 1},
		{"--ctreplsrcport", "", 1},
		{"--ctrepldstport", "", 1},
	}},
	{name: "state", match: (*moduleReader).matchConntrack, options: []optionKind{{"--state", "", 1}}},
	{
		name: "iprange", match: (*moduleReader).matchIPRange,
		options: []optionKind{{"--src-range", "", 1}, {"--dst-range", "", 1}},
	},
	{
		name: "comment", match: (*moduleReader).matchComment,
		options: []optionKind{{"--comment", "", 1}},
	},
	{name: "addrtype", match: (*moduleReader).matchAddrType, options: []optionKind{
		{"--src-type", "", 1},
		{"--dst-type", "", 1},
		{"--limit-iface-in", "", 0},
		{"--limit-iface-out", "", 0},
	}},
	{name: "socket", match: (*moduleReader).matchSocket, options: []optionKind{
		{"--transparent", "", 0}, {"--nowildcard", "", 0}, {"--restore-skmark", "", 0},
	}},
	{name: "rpfilter", match: (*moduleReader).matchRPFilter, options: []optionKind{
		{"--loose", "", 0}, {"--validmark", "", 0}, {"--accept-local", "", 0}, {"--invert", "", 0},
	}},
	{name: "icmp", match: (*moduleReader).matchICMP, options: []optionKind{{"--icmp-type", "", 1}}},
	{
		name: "icmp6", match: (*moduleReader).matchICMPv6,
		options: []optionKind{{"--icmpv6-type", "", 1}},
	},
}

// openMatches contains the other matches, with their options from iptables-extensions(8). They may
// have further options.
var openMatches = [...]openExtension{
	{name: "recent", match: (*moduleReader).matchRecent, options: `--set --rcheck --update --remove
		--reap --rttl --rsource --rdest --seconds= --hitcount= --name= --mask=`},
	{name: "limit", match: (*moduleReader).matchLimit, options: "--limit= --limit-burst="},
	{
		name: "statistic", match: (*moduleReader).matchStatistic,
		options: "--mode= --probability= --every= --packet=",
	},
	{name: "hashlimit", match: (*moduleReader).matchHashlimit, options: `--hashlimit=
		--hashlimit-upto= --hashlimit-above= --hashlimit-mode=
		--hashlimit-srcmask= --hashlimit-dstmask= --hashlimit-name= --hashlimit-burst=
		--hashlimit-htable-size= --hashlimit-htable-max= --hashlimit-htable-gcinterval=
		--hashlimit-htable-expire= --hashlimit-rate-interval= --hashlimit-rate-match`},
	{name: "quota", match: (*moduleReader).matchQuota, options: "--quota="},
	{name: "time", match: (*moduleReader).matchTime, options: `--datestart= --datestop= --timestart= --timestop= --monthdays=
		--weekdays= --kerneltz --contiguous --utc --localtz`},
	{
		name: "string", match: (*moduleReader).matchString,
		options: "--from= --to= --algo= --string= --hex-string= --icase",
	},
	{name: "set", match: (*moduleReader).matchSet, options: `--match-set== --set== --return-nomatch
		--update-counters --update-subcounters --packets-eq= --packets-lt= --packets-gt=
		--bytes-eq= --bytes-lt= --bytes-gt=`},
	{name: "rateest", match: (*moduleReader).matchRateest, options: `--rateest= --rateest1= --rateest2=
		--rateest-delta --rateest-bps --rateest-pps --rateest-bps1= --rateest-pps1=
		--rateest-bps2= --rateest-pps2= --rateest-lt --rateest-gt --rateest-eq`},
	{name: "physdev", match: (*moduleReader).matchPhysicalDevice, options: `--physdev-in= --physdev-out= --physdev-is-in --physdev-is-out
		--physdev-is-bridged`},
	{name: "policy", options: `--dir= --pol= --reqid= --spi= --proto= --mode= --tunnel-src=
		--tunnel-dst= --strict --next`},
	{name: "cgroup", match: (*moduleReader).matchCgroup, options: "--path= --cgroup="},
	{
		name: "connbytes", match: (*moduleReader).matchConnBytes,
		options: "--connbytes= --connbytes-dir= --connbytes-mode=",
	},
	{name: "connlimit", match: (*moduleReader).matchConnLimit, options: `--connlimit-upto= --connlimit-above= --connlimit-mask=
		--connlimit-saddr --connlimit-daddr`},
	{name: "length", match: (*moduleReader).matchLength, options: "--length="},
	{name: "mac", match: (*moduleReader).matchMAC, options: "--mac-source="},
	{name: "pkttype", match: (*moduleReader).matchPacketType, options: "--pkt-type="},
	{name: "tos", match: (*moduleReader).matchTOS, options: "--tos="},
	{name: "dscp", match: (*moduleReader).matchDSCP, options: "--dscp= --dscp-class="},
	{
		name: "ttl", match: (*moduleReader).matchHopLimit,
		options: "--ttl-eq= --ttl-lt= --ttl-gt= --ttl=",
	},
	{name: "hl", match: (*moduleReader).matchHopLimit, options: "--hl-eq= --hl-lt= --hl-gt="},
	{name: "ecn", options: "--ecn-ip-ect= --ecn-tcp-cwr --ecn-tcp-ece"}, //nolint:misspell // ECT
	{name: "u32", match: (*moduleReader).matchU32, options: "--u32="},
	{name: "bpf", options: "--bytecode= --object-pinned="},
	{name: "realm", options: "--realm="},
	{name: "helper", match: (*moduleReader).matchHelper, options: "--helper="},
	{name: "nfacct", match: (*moduleReader).matchNFAcct, options: "--nfacct-name="},
	{name: "osf", options: "--genre= --ttl= --log="},
	{name: "cpu", options: "--cpu="},
	{name: "devgroup", options: "--src-group= --dst-group="},
	{name: "esp", options: "--espspi="},
	{name: "ah", options: "--ahspi= --ahlen= --ahres"},
	{name: "ipcomp", options: "--ipcompspi= --compres"},
	{name: "tcpmss", match: (*moduleReader).matchTCPMSS, options: "--mss="},
	{name: "ipvs", options: "--ipvs --vproto= --vaddr= --vport= --vdir= --vmethod= --vportctl="},
	{name: "l2tp", options: "--tid= --sid= --pversion= --type="},
	{
		name: "frag", match: (*moduleReader).matchFragment,
		options: "--fragid= --fraglen= --fragres --fragfirst --fragmore --fraglast",
	},
	{name: "hbh", options: "--hbh-len= --hbh-opts="},
	{name: "dst", options: "--dst-len= --dst-opts="},
	{name: "rt", options: `--rt-type= --rt-segsleft= --rt-len= --rt-0-addrs= --rt-0-res
		--rt-0-not-strict`},
	{name: "mh", options: "--mh-type="},
	{
		name: "ipv6header", match: (*moduleReader).matchHeaders, options: "--header= --soft",
	},
	{name: "cluster", options: `--cluster-total-nodes= --cluster-local-node=
		--cluster-local-nodemask= --cluster-hash-seed=`},
	{name: "connlabel", match: (*moduleReader).matchConnlabel, options: "--label= --set"},
}

// openMatch is the extension for a match whose name is unknown.
var openMatch = extension{open: true, match: (*moduleReader).unknownMatch}

// unknownMatch records that the model does not represent the match.
func (r *moduleReader) unknownMatch() []rules.Match {
	r.isUnknown = true
	return nil
}
