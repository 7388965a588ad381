package save

import "sync"

// This file lists the matches that the package knows. The methods that parse them are in comment.go
// and in the files match_*.go. Their names begin with match, or end with Text. For a match that the
// model represents, a method of rulePrinter in the same file writes the match; see addModuleMatch.

// knownMatches contains the known matches by name, with their options from iptables-extensions(8).
var knownMatches = sync.OnceValue(func() map[string]*extension { return indexed(matchList[:]) })

var matchList = [...]extension{
	{name: "tcp", match: (*moduleReader).matchTCP, allListed: true, options: `
		--dport|--destination-port= --sport|--source-port= --tcp-flags== --syn --tcp-option=`},
	{name: "udp", match: (*moduleReader).matchUDP, allListed: true, options: `
		--dport|--destination-port= --sport|--source-port=`},
	{name: "sctp", match: (*moduleReader).matchSCTP, allListed: true, options: `
		--dport|--destination-port= --sport|--source-port= --chunk-types==`},
	{name: "dccp", match: (*moduleReader).matchDCCP, allListed: true, options: `
		--dport|--destination-port= --sport|--source-port= --dccp-types= --dccp-option=`},
	{name: "multiport", match: (*moduleReader).matchMultiport, allListed: true, options: `
		--sports|--source-ports= --dports|--destination-ports= --ports|--port=`},
	{name: "mark", match: (*moduleReader).matchMark, allListed: true, options: "--mark="},
	{name: "connmark", match: (*moduleReader).matchConnmark, allListed: true, options: "--mark="},
	{name: "owner", match: (*moduleReader).matchOwner, allListed: true, options: `
		--uid-owner= --gid-owner= --socket-exists --suppl-groups`},
	{name: "conntrack", match: (*moduleReader).matchConntrack, allListed: true, options: `
		--ctstate= --ctproto= --ctstatus= --ctexpire= --ctdir= --ctorigsrc= --ctorigdst=
		--ctreplsrc= --ctrepldst= --ctorigsrcport= --ctorigdstport= --ctreplsrcport=
		--ctrepldstport=`},
	{name: "state", match: (*moduleReader).matchConntrack, allListed: true, options: "--state="},
	{name: "iprange", match: (*moduleReader).matchIPRange, allListed: true, options: `
		--src-range= --dst-range=`},
	{name: "comment", match: (*moduleReader).matchComment, allListed: true, options: "--comment="},
	{name: "addrtype", match: (*moduleReader).matchAddrType, allListed: true, options: `
		--src-type= --dst-type= --limit-iface-in --limit-iface-out`},
	{name: "socket", match: (*moduleReader).matchSocket, allListed: true, options: `
		--transparent --nowildcard --restore-skmark`},
	{name: "rpfilter", match: (*moduleReader).matchRPFilter, allListed: true, options: `
		--loose --validmark --accept-local --invert`},
	{name: "icmp", match: (*moduleReader).matchICMP, allListed: true, options: "--icmp-type="},
	{name: "icmp6", match: (*moduleReader).matchICMP, allListed: true, options: "--icmpv6-type="},
	{name: "recent", text: (*moduleReader).recentText, options: `
		--set --rcheck --update --remove --reap --rttl --rsource --rdest --seconds= --hitcount=
		--name= --mask=`},
	{name: "limit", text: (*moduleReader).limitText, options: "--limit= --limit-burst="},
	{name: "statistic", text: (*moduleReader).statisticText, options: `
		--mode= --probability= --every= --packet=`},
	{name: "hashlimit", text: (*moduleReader).hashlimitText, options: `
		--hashlimit= --hashlimit-upto= --hashlimit-above= --hashlimit-mode= --hashlimit-srcmask=
		--hashlimit-dstmask= --hashlimit-name= --hashlimit-burst= --hashlimit-htable-size=
		--hashlimit-htable-max= --hashlimit-htable-gcinterval= --hashlimit-htable-expire=
		--hashlimit-rate-interval= --hashlimit-rate-match`},
	{name: "quota", text: (*moduleReader).quotaText, options: "--quota="},
	{name: "time", text: (*moduleReader).timeText, options: `
		--datestart= --datestop= --timestart= --timestop= --monthdays= --weekdays= --kerneltz
		--contiguous --utc --localtz`},
	{name: "string", text: (*moduleReader).stringText, options: `
		--from= --to= --algo= --string= --hex-string= --icase`},
	{name: "set", match: (*moduleReader).matchSet, options: `
		--match-set== --set== --return-nomatch --update-counters --update-subcounters
		--packets-eq= --packets-lt= --packets-gt= --bytes-eq= --bytes-lt= --bytes-gt=`},
	{name: "rateest", match: (*moduleReader).matchRateest, options: `
		--rateest= --rateest1= --rateest2= --rateest-delta --rateest-bps --rateest-pps
		--rateest-bps1= --rateest-pps1= --rateest-bps2= --rateest-pps2= --rateest-lt --rateest-gt
		--rateest-eq`},
	{name: "physdev", text: (*moduleReader).physicalDeviceText, options: `
		--physdev-in= --physdev-out= --physdev-is-in --physdev-is-out --physdev-is-bridged`},
	{name: "policy", options: `
		--dir= --pol= --reqid= --spi= --proto= --mode= --tunnel-src= --tunnel-dst= --strict
		--next`},
	{name: "cgroup", match: (*moduleReader).matchCgroup, options: "--path= --cgroup="},
	{name: "connbytes", text: (*moduleReader).connBytesText, options: `
		--connbytes= --connbytes-dir= --connbytes-mode=`},
	{name: "connlimit", text: (*moduleReader).connLimitText, options: `
		--connlimit-upto= --connlimit-above= --connlimit-mask= --connlimit-saddr
		--connlimit-daddr`},
	{name: "length", text: (*moduleReader).lengthText, options: "--length="},
	{name: "mac", text: (*moduleReader).macText, options: "--mac-source="},
	{name: "pkttype", text: (*moduleReader).packetTypeText, options: "--pkt-type="},
	{name: "tos", text: (*moduleReader).tosText, options: "--tos="},
	{name: "dscp", text: (*moduleReader).dscpText, options: "--dscp= --dscp-class="},
	{name: "ttl", text: (*moduleReader).hopLimitText, options: `
		--ttl-eq= --ttl-lt= --ttl-gt= --ttl=`},
	{name: "hl", text: (*moduleReader).hopLimitText, options: "--hl-eq= --hl-lt= --hl-gt="},
	{name: "ecn", options: "--ecn-ip-ect= --ecn-tcp-cwr --ecn-tcp-ece"}, //nolint:misspell // ECT
	{name: "u32", text: (*moduleReader).u32Text, options: "--u32="},
	{name: "bpf", options: "--bytecode= --object-pinned="},
	{name: "realm", options: "--realm="},
	{name: "helper", text: (*moduleReader).helperText, options: "--helper="},
	{name: "nfacct", match: (*moduleReader).matchNFAcct, options: "--nfacct-name="},
	{name: "osf", options: "--genre= --ttl= --log="},
	{name: "cpu", options: "--cpu="},
	{name: "devgroup", options: "--src-group= --dst-group="},
	{name: "esp", options: "--espspi="},
	{name: "ah", options: "--ahspi= --ahlen= --ahres"},
	{name: "ipcomp", options: "--ipcompspi= --compres"},
	{name: "tcpmss", text: (*moduleReader).tcpmssText, options: "--mss="},
	{name: "ipvs", options: "--ipvs --vproto= --vaddr= --vport= --vdir= --vmethod= --vportctl="},
	{name: "l2tp", options: "--tid= --sid= --pversion= --type="},
	{name: "frag", text: (*moduleReader).fragmentText, options: `
		--fragid= --fraglen= --fragres --fragfirst --fragmore --fraglast`},
	{name: "hbh", options: "--hbh-len= --hbh-opts="},
	{name: "dst", options: "--dst-len= --dst-opts="},
	{name: "rt", options: `
		--rt-type= --rt-segsleft= --rt-len= --rt-0-addrs= --rt-0-res --rt-0-not-strict`},
	{name: "mh", options: "--mh-type="},
	{name: "ipv6header", text: (*moduleReader).headersText, options: "--header= --soft"},
	{name: "cluster", options: `
		--cluster-total-nodes= --cluster-local-node= --cluster-local-nodemask=
		--cluster-hash-seed=`},
	{name: "connlabel", match: (*moduleReader).matchConnlabel, options: "--label= --set"},
}
