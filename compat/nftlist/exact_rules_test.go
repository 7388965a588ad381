package nftlist_test

// exactRules are rules that Parse reads from a listing exactly as nft.ReadAll reads them from the
// kernel, except for the rules that isAmbiguous describes. They are valid in a chain of any family
// that is not a base chain. The other lists contain such rules for certain families or base chains.
var exactRules = []string{
	// Verdict maps.
	"tcp dport vmap { 80 : accept, 443 : jump target, 90-99 : drop }",
	"tcp dport vmap { 80 : accept, * : return }",
	"tcp dport vmap { 80 : continue }",
	"meta l4proto vmap { tcp : drop, udp : jump target }",
	"ct state vmap { invalid : return, established : accept, related : continue, new : drop }",
	"ct direction vmap { original : drop }",
	`iifname vmap { "a" : drop, "b*" : accept }`,
	"tcp dport vmap @verdicts",
	"tcp dport vmap @missing-none",
	"numgen inc mod 4 vmap { 0-1 : drop, 2 : accept }",
	"symhash mod 2 vmap { 0 : drop, 1 : accept }",
	"tcp flags vmap { syn : drop }",
	// Value maps.
	"meta mark set tcp dport map { 80 : 1, 90 : 2 }",
	"meta mark set tcp dport map @marks",
	"ct mark set tcp dport map { 80 : 5 }",
	"meta mark set numgen inc mod 2 offset 5",
	"meta mark set symhash mod 2",
	"ct mark set numgen random mod 2",
	// Concatenations.
	"meta l4proto . th dport { tcp . 80, udp . 53 } drop",
	"meta l4proto . th dport != { tcp . 5, udp . 6-7 } drop",
	"tcp sport . tcp dport { 1 . 2 } drop",
	`iifname . tcp dport { "a" . 5, "b*" . 6 } drop`,
	"meta mark . tcp dport { 1 . 5-6 } drop",
	"ct state . tcp dport { new . 5 } drop",
	"meta skuid . tcp dport { 1 . 5 } drop",
	`iif . tcp dport { "lo" . 5 } drop`,
	"meta l4proto . th dport vmap { tcp . 80 : drop, udp . 53 : jump target }",
	"meta l4proto . th dport vmap @services",
	"tcp dport . meta mark @pairs drop",
	// Changes of the header.
	"tcp option maxseg size set 1200",
	// The connection.
	"ct status dnat drop",
	"ct status != dnat drop",
	"ct status == dnat drop",
	"ct status snat,dnat drop",
	"ct status ! snat,dnat drop",
	"ct status & dnat == dnat drop",
	"ct status { dnat, snat } drop",
	"ct status == snat|dnat drop",
	"ct status != snat|dnat drop",
	"ct state == established|related drop",
	"tcp flags == fin|syn drop",
	"ct status & (dnat|snat) == dnat drop",
	"ct direction original drop",
	"ct direction != reply drop",
	"ct state != { established, new } drop",
	"ct state ! established,new drop",
	"ct state != established,new drop",
	"ct state == established drop",
	"ct state & new == new drop",
	"ct zone 5 drop",
	"ct original zone 5 drop",
	"ct l3proto ipv4 drop",
	"ct mark and 0xf0 == 0 drop",
	"ct zone set 5",
	// Routes, sockets and interfaces.
	"fib daddr type local drop",
	"fib daddr type { local, broadcast } drop",
	"fib saddr type != local drop",
	"fib daddr . iif type local drop",
	"fib saddr . iif oif missing drop",
	"fib saddr . iif oif exists drop",
	"fib saddr . mark . iif oif missing drop",
	`fib saddr . iif oifname "lo" drop`,
	`fib saddr . iif oif "lo" drop`,
	"socket transparent 1 drop",
	"socket transparent 0 drop",
	"socket wildcard 0 drop",
	"socket mark 5 drop",
	"iif lo drop",
	"iif != lo drop",
	`iifname { "a*", "c" } drop`,
	`iifname { "a", "b" } drop`,
	`oifname != "a*" drop`,
	// Conditions with a state.
	"limit rate 1/second drop",
	"limit rate 5/minute burst 10 packets drop",
	"limit rate over 5 kbytes/second drop",
	"limit rate 5 mbytes/second burst 3 kbytes drop",
	"quota over 10 mbytes drop",
	"quota 500 bytes drop",
	"ct count over 5 drop",
	"numgen inc mod 2 0 drop",
	"numgen random mod 10 offset 5 < 7 drop",
	`limit name "slow" drop`,
	`quota name "little" drop`,
	`counter name "every" drop`,
	`tcp dport 21 ct helper set "ftp-std"`,
	`tcp dport 22 ct timeout set "short"`,
	"tcp dport 80 limit rate 1/second counter drop",
	"meta l4proto tcp ct state new tcp dport 80 limit rate 1/second counter drop",
	"tcp dport 80 numgen random mod 9 { 1, 3 } limit rate 1/second drop",
	"tcp dport { 1-5, 10 } limit rate 1/second drop",
	`iifname { "a*", "c" } limit rate 1/second drop`,
	"meta mark . tcp dport { 1 . 5-6 } limit rate 1/second drop",
	"meta skuid { 1-5, 9 } limit rate 1/second drop",
	// Other properties.
	"meta mark > 7 drop",
	"meta mark 1-7 drop",
	"meta mark != 1-5 drop",
	"meta mark and 0xff 1-5 drop",
	"meta mark and 0xff { 1, 2 } drop",
	"meta mark and 0xf0 > 5 drop",
	"meta mark | 1 == 1 drop",
	"meta mark { 1-5, 9 } drop",
	"meta mark { 0x100-0x1ff, 0x10000000-0x1fffffff } drop", // listed as prefixes
	"ct mark vmap { 0x100-0x1ff : drop, 0x200 : accept }",
	"meta mark . tcp dport { 0x100-0x1ff . 80-90 } drop",
	"meta skuid 1-5 drop",
	"meta l4proto 1-5 drop",
	"tcp dport != 1-7 drop",
	"tcp dport >= 80 drop",
	"tcp dport <= 80 drop",
	"tcp dport 80-80 drop",
	"tcp dport { 1-5, 6-8, 10 } drop",
	"tcp flags syn drop",
	"tcp flags == syn drop",
	"tcp flags { syn, ack } drop",
	"tcp flags ! syn,ack drop",
	"tcp flags & (syn|ack) == syn|ack drop",
	"tcp flags & syn == 0 drop",
	"tcp flags & syn != 0 drop",
	"tcp flags fin,syn drop",
	"meta length 5 drop",
	"meta cpu 1 drop",
	"meta pkttype broadcast drop",
	"meta cgroup 5 drop",
	"meta priority 1:2 drop",
	"meta priority set 1:2",
	"meta nftrace set 1",
	"meta mark set ct mark and 0xff or 0x100",
	"meta mark set meta mark or 1",
	"ct mark set meta mark and 0xff",
	"udp dport 5 udp sport 6 drop",
	"tcp dport 5 tcp sport 6 drop",
	"meta l4proto esp drop",
	"meta l4proto icmp drop",
	"meta mark & 0xffff0000 == 5 drop",
	"ct mark & 0xfff00000 != 7 drop",
	"meta protocol ip6 drop",
	"meta priority none drop",
	"ct id 5 drop",
	`log prefix "x" flags tcp sequence,options flags ip options ct state new drop`,
	"tcp dport 80 counter tcp dport 80 meta mark set 5 tcp sport 7 drop",
	"notrack",
	`log prefix "x" level warn limit rate 1/second drop`,
	// Shifts.
	"meta mark set meta mark << 8",
	"ct mark set meta mark >> 4",
	"meta mark set ct mark << 8 | 0x10",
	"meta mark set (meta mark & 0xff) << 8",
	"meta mark set meta mark << 3 & 0xff tcp dport 5 drop",
	// Parts of headers.
	"udp length 5-8 drop",
	"udp checksum 0 drop",
	"tcp sequence 22 drop",
	"tcp ackseq > 5 drop",
	"tcp doff { 5, 6 } drop",
	"tcp window < 100 drop",
	"tcp urgptr != 0 drop",
	"tcp dport 5 tcp window 7 drop",
	"sctp vtag 5 drop",
	"udplite csumcov 5 drop",
	"ah spi 5 drop",
	"esp spi { 5, 7-9 } drop",
	"esp sequence 5 drop",
	"udp dport 4789 @ih,32,24 0x1001 drop",
	"@th,64,8 & 0xf0 != 0x50 drop",
	"@nh,0,4 5 drop",
	"@ll,0,48 0x112233445566 drop",
	"@th,0,128 5 drop",
	"@ih,0,32 1-5 drop",
	"@th,160,16 { 5, 7-9 } drop",
	"tcp option maxseg size > 500 drop",
	"tcp option timestamp tsval 5 drop",
	"tcp option sack right 5 drop",
	"tcp option window count 5 drop",
	"tcp option sack-perm exists drop",
	"tcp option window missing drop",
	// The connection, the route and the host.
	"ct label 5 drop",
	"ct label != 100 drop",
	"ct label ! 5 drop",
	"ct label set 5",
	"ct label set 127",
	`ct helper "ftp" drop`,
	`ct helper { "ftp", "sip" } drop`,
	"ct bytes > 500 drop",
	"ct original packets 5-9 drop",
	"ct reply avgpkt 7 drop",
	"ct bytes { 5, 6 } drop",
	"ct event set new,destroy",
	"ct event set new",
	"rt classid 5 drop",
	"rt ipsec exists drop",
	"meta rtclassid 5 drop",
	"meta iiftype ether drop",
	"meta iiftype { ether, loopback } drop",
	`meta iifkind "veth" drop`,
	`meta day "Monday" drop`,
	`meta day { "Monday", "Tuesday" } drop`,
	"meta random < 5 drop",
	"meta random & 1 == 0 drop",
	"meta priority set 0",
}

// exactAddressRules are rules with addresses of IPv4 or IPv6. Their format arguments are the result
// of formatArgumentsOf.
var exactAddressRules = []string{
	"%[1]s daddr . tcp dport { %[2]s . 80, %[3]s . 90 } drop",
	"%[1]s saddr . tcp dport vmap { %[4]s . 5-6 : drop, * : accept }",
	"%[1]s daddr . meta l4proto . th dport vmap { %[2]s . tcp . 80 : drop, %[3]s . udp . 53 : goto target }",
	"%[1]s saddr . %[1]s daddr vmap { %[2]s . %[4]s : drop }",
	"%[1]s saddr vmap { %[4]s : drop, %[2]s : accept }",
	"%[1]s saddr { %[2]s, %[4]s } drop",
	"%[1]s saddr != { %[2]s, %[3]s } drop",
	"%[1]s saddr %[2]s-%[3]s drop",
	"%[1]s saddr != %[4]s drop",
	"%[1]s daddr & %[3]s == %[2]s drop",
	"meta mark set %[1]s saddr map { %[4]s : 1 }",
	"meta mark set %[1]s saddr map { %[2]s : 1, %[3]s : 2 }",
	"ct original %[1]s daddr %[2]s drop",
	"ct reply %[1]s saddr %[4]s drop",
	"ct original %[1]s saddr { %[2]s, %[4]s } drop",
	"jhash %[1]s saddr mod 2 seed 0xdead 0 drop",
	"meta mark set jhash %[1]s saddr . %[1]s daddr mod 4 seed 7",
	"add @dynamic-%[1]s { %[1]s daddr timeout 5s } drop",
	"update @fixed-%[1]s { %[1]s saddr } drop",
	"add @dynamic-%[1]s { %[1]s saddr limit rate over 5/minute burst 3 packets } drop",
	"update @dynamic-%[1]s { %[1]s saddr timeout 5s limit rate 5 kbytes/second } drop",
	"update @dynamic-%[1]s { %[1]s saddr counter } drop",
	"update @dynamic-%[1]s { %[1]s saddr limit rate 1/second counter } drop",
	"%[1]s daddr @dynamic-%[1]s drop",
	"%[1]s daddr @fixed-%[1]s drop",
	"%[1]s daddr @intervals-%[1]s drop",
	"%[1]s daddr != @intervals-%[1]s drop",
	"%[1]s daddr . tcp dport @services-%[1]s drop",
	"%[1]s daddr . tcp dport @ranges-%[1]s drop",
	"%[1]s daddr %[2]s %[1]s saddr %[3]s tcp sport 5 drop",
	"%[1]s daddr @expiring-%[1]s drop",
	"%[1]s saddr { %[2]s, %[4]s } limit rate 1/second drop",
	"%[1]s daddr @intervals-%[1]s numgen inc mod 3 0 drop",
	"meta mark set %[1]s saddr map { %[4]s : 1 } limit rate 1/second",
	"ct state new %[1]s saddr %[2]s tcp dport { 80, 90 } counter limit rate 3/hour drop",
}

// exactNetworkRules are rules with fields that only IPv4 or IPv6 has, by family.
var exactNetworkRules = map[string][]string{
	"ip": {
		"ip version 4 drop",
		"ip hdrlength > 5 drop",
		"ip dscp cs1 drop",
		"ip dscp != 0 drop",
		"ip dscp { cs1, af21 } drop",
		"ip dscp { 1-5, 10 } drop",
		"ip dscp vmap { cs1 : drop, af21 : accept }",
		"ip dscp @classes drop",
		"ip saddr . ip dscp { 10.0.0.1 . cs1 } drop",
		"ip saddr . ip dscp { 10.0.0.1 . 1-5 } drop",
		"ip dscp . tcp dport { cs1 . 80, af21 . 90 } drop",
		"meta mark set ip dscp map { cs1 : 5 }",
		"ip ecn ce drop",
		"ip dscp cs1 ip ecn ce drop",
		"ip id 5 drop",
		"ip frag-off & 0x1fff != 0 drop",
		"ip checksum 5 drop",
		"icmp id 5 drop",
		"icmp type echo-request icmp id 5 drop",
		"icmp sequence 1-5 drop",
		"icmp mtu > 500 drop",
		"icmp gateway { 1, 2 } drop",
		"icmp checksum 5 drop",
		"rt ip nexthop 10.0.0.1 drop",
		"rt ip nexthop { 10.0.0.1, 10.1.0.0/16 } drop",
		"ip option lsrr exists drop",
	},
	"ip6": {
		"ip6 dscp af31 drop",
		"ip6 dscp { af31, cs1 } drop",
		"ip6 ecn ect1 drop",
		"ip6 flowlabel 5-7 drop",
		"icmpv6 id 5 drop",
		"icmpv6 mtu 1280 drop",
		"icmpv6 max-delay 5 drop",
		"rt ip6 nexthop fd00::1 drop",
		"exthdr frag exists drop",
		"exthdr hbh missing drop",
	},
}

// exactTranslations are rules for a base chain of type nat: at postrouting for snat and masquerade,
// and at prerouting for the others. Their format arguments are the result of formatArgumentsOf.
var exactTranslations = []string{
	"tcp dport 80 dnat %[1]s to %[2]s",
	"tcp dport 80 dnat %[1]s to %[5]s:80",
	"tcp dport 80 dnat %[1]s to %[5]s:80-90 random,persistent",
	"dnat %[1]s to %[2]s-%[3]s",
	"dnat %[1]s to %[4]s",
	"dnat %[1]s to %[2]s persistent",
	"dnat %[1]s to %[1]s saddr map { %[2]s : %[3]s }",
	"dnat %[1]s to %[1]s saddr map @values-%[1]s",
	"dnat %[1]s to %[1]s saddr map { %[2]s : %[2]s-%[3]s }",
	"tcp dport 5 dnat %[1]s to %[5]s:tcp dport map { 5 : 6 }",
	"dnat %[1]s prefix to %[1]s saddr map { %[4]s : %[4]s }",
	"meta l4proto tcp dnat %[1]s to %[1]s saddr . tcp dport map { %[2]s . 5 : %[3]s . 6 }",
	"meta l4proto tcp dnat %[1]s addr . port to numgen random mod 2 map { 0 : %[2]s . 80, 1 : %[3]s . 90 }",
	"meta l4proto tcp dnat %[1]s addr . port to numgen inc mod 1 map { 0 : %[2]s . 80 }",
	"meta l4proto tcp dnat %[1]s to %[1]s daddr . tcp dport map @targets-%[1]s",
	"tcp dport 5 dnat %[1]s to %[1]s saddr map { %[2]s : %[3]s }:80",
	"dnat %[1]s to %[1]s saddr map @none-%[1]s",
	"dnat %[1]s to meta l4proto . th dport map @no-targets-%[1]s", // systemd-networkd
	"tcp dport 5 dnat %[1]s to jhash %[1]s saddr mod 2 seed 5 map { 0 : %[2]s, 1 : %[3]s }",
	"redirect",
	"redirect random",
	"tcp dport 5 redirect to :80 persistent",
	"tcp dport 5 redirect to :80-90",
	"meta l4proto tcp redirect to :80",
	"meta l4proto tcp redirect to :tcp dport map { 80 : 90, 100 : 110 }",
	"masquerade",
	"masquerade fully-random",
	"meta l4proto tcp masquerade to :1024-2048 random",
	"snat %[1]s to %[2]s",
	"snat %[1]s to %[2]s-%[3]s fully-random",
}

// exactAtPrerouting are rules for a base chain of type filter at prerouting. Their format arguments
// are the result of formatArgumentsOf.
var exactAtPrerouting = []string{
	"fib saddr . iif oif 0 drop",
	"fib saddr . mark . iif oif 0 drop",
	"meta l4proto tcp tproxy %[1]s to %[5]s:80",
	"meta l4proto tcp tproxy %[1]s to :80",
	"meta l4proto udp tproxy %[1]s to %[5]s",
	"reject",
	"reject with tcp reset",
	"tcp dport 5 reject with tcp reset",
	"reject with %[6]s port-unreachable",
	"reject with %[6]s admin-prohibited",
	"%[6]s type echo-request drop",
	"%[6]s type { echo-request, destination-unreachable } drop",
	"%[6]s type != echo-request drop",
	"%[6]s type . %[6]s code { 8 . 0 } drop",
	"%[6]s type > 8 drop",
	"%[6]s code 3 drop",
	"%[6]s type vmap { 8 : drop }",
}

// exactNotInet are rules for a base chain of type filter at prerouting of an ip or ip6 table.
var exactNotInet = []string{
	"ct protocol tcp ct original proto-dst 80 drop",
	"ct protocol tcp drop",
	"tcp dport 80 tcp option window missing drop",
	"icmp type echo-request drop",
	"icmpv6 type echo-request drop",
}

// exactInet are rules for a base chain of type filter at prerouting of an inet table.
var exactInet = []string{
	"reject with icmpx admin-prohibited",
	"meta nfproto ipv4 reject",
	"meta nfproto ipv4 tcp dport 80 drop",
	"meta nfproto != ipv4 tcp dport 80 drop",
	"ip protocol tcp tcp dport 80 drop",
	"ip protocol { tcp, udp } th dport 53 drop",
	"meta l4proto { tcp, udp } th dport 53 drop",
	"meta l4proto tcp tproxy to :80",
	"ip6 nexthdr tcp drop",
	"ip length 5 drop",
	"ip ttl 5 drop",
	"ip6 hoplimit 5 drop",
	"ip saddr 10.0.0.1 icmpv6 type echo-request drop",
	"meta nfproto ipv6 icmp code 3 drop",
	"meta nfproto ipv4 tcp option maxseg size 5 drop",
	"ip6 saddr fd00::1 ct protocol tcp drop",
}

// objectDeclarations declares the named objects that the rules of all families use.
const objectDeclarations = `
	counter every { }
	limit slow { rate 5/minute; }
	quota little { 5 mbytes; }
	ct helper ftp-std { type "ftp" protocol tcp; }
	ct timeout short { protocol tcp; policy = { established : 60 }; }
	map verdicts { type inet_service : verdict; elements = { 22 : drop, 23 comment "x" : jump target, 24 : accept }; }
	map missing-none { type inet_service : verdict; }
	map marks { type inet_service : mark; elements = { 22 : 5, 23 : 6 }; }
	map services { type inet_proto . inet_service : verdict; elements = { tcp . 80 : drop, udp . 53 : goto target }; }
	set classes { type dscp; elements = { cs1, af21 }; }
	set pairs { type inet_service . mark; elements = { 5 . 6, 7 . 8 }; }
`

// familySetDeclarations declares the sets and maps that rules of one family use. Its format
// arguments are the result of formatArgumentsOf.
const familySetDeclarations = `
	set fixed-%[1]s { type %[7]s; elements = { %[2]s, %[3]s }; }
	set dynamic-%[1]s { type %[7]s; flags dynamic,timeout; timeout 1h; }
	set expiring-%[1]s { type %[7]s; flags timeout; elements = { %[2]s timeout 1h, %[3]s }; }
	set intervals-%[1]s { type %[7]s; flags interval; elements = { %[2]s, %[4]s }; }
	set services-%[1]s { type %[7]s . inet_service; counter; elements = { %[2]s . 80 comment "x", %[3]s . 90 }; }
	set ranges-%[1]s { type %[7]s . inet_service; flags interval; elements = { %[4]s . 80-90, %[2]s . 5 }; }
	map values-%[1]s { type %[7]s : %[7]s; elements = { %[2]s : %[3]s }; }
	map none-%[1]s { type %[7]s : %[7]s; }
	map no-targets-%[1]s { type inet_proto . inet_service : %[7]s . inet_service; }
	map targets-%[1]s { type %[7]s . inet_service : %[7]s . inet_service; elements = { %[2]s . 80 : %[3]s . 8080 }; }
`

// formatArgumentsOf returns the format arguments for rules and declarations of a family:
//
//	%[1]s  the family, ip or ip6
//	%[2]s  an address
//	%[3]s  a greater address
//	%[4]s  a prefix that contains neither of the addresses
//	%[5]s  the first address as nft writes it before a port
//	%[6]s  the control protocol of the family, icmp or icmpv6
//	%[7]s  the type of its addresses in declarations of sets
func formatArgumentsOf(family string) []any {
	if family == "ip6" {
		return []any{"ip6", "fd00::1", "fd00::9", "fd01::/32", "[fd00::1]", "icmpv6", "ipv6_addr"}
	}
	return []any{"ip", "10.0.0.1", "10.0.0.9", "10.1.0.0/17", "10.0.0.1", "icmp", "ipv4_addr"}
}
