package kerneltest

import (
	"fmt"
	"slices"
	"strings"

	"github.com/sluice-mesh/sluice/rules"
)

// rareObjects returns the declarations of the named objects that rules with rare options use. In
// inet tables, these objects contain IPv4 addresses.
func (d *nftGenerator) rareObjects() []string {
	addrType, family := "ipv4_addr", rules.IPv4
	if d.family == rules.IPv6 {
		addrType, family = "ipv6_addr", rules.IPv6
	}
	a, p := someAddrs[family], somePrefixes[family]
	dot := " . "
	return []string{
		"set seen { type " + addrType + "; size 128; flags dynamic,timeout; timeout 1h; }",
		"set seenports { type inet_service; size 128; flags dynamic; }",
		"map marks4 { type " + addrType + " : mark; elements = { " + a[2] + " : 0x5, " + a[1] +
			" : 0x539 }; }",
		"map verdicts { type inet_service : verdict; flags interval; " +
			"elements = { 53 : accept, 80-443 : drop, 9090 : return }; }",
		"map to { type inet_service : " + addrType + " . inet_service; elements = { 80 : " +
			a[6%len(a)] + dot + "9090, 443 : " + a[1] + dot + "15001 }; }",
		"set pairs { type " + addrType + " . inet_service; flags interval; elements = { " +
			p[0] + dot + "80-443, " + p[3] + dot + "53 }; }",
		"quota q { over 1 mbytes }",
		"limit l { rate 1/second burst 3 packets }",
		"counter c { }",
		`ct helper ftp { type "ftp" protocol tcp; }`,
		"ct timeout t { protocol tcp; policy = { established: 100 }; }",
	}
}

// fill replaces placeholders by drawn values:
//   - $A and $B by addresses, $C by a prefix, and $R by a range of addresses
//   - $P and $Q by ports, and $S by a range of ports
//   - $M and $N by marks, and $K by a mask
//   - $T by a verdict, $ip by ip or ip6, and $not by != or nothing
func (d *nftGenerator) fill(text string) string {
	g := d.Generator
	family, ip := d.addrFamily()
	usesNamedObject := containsAny(text, "@marks4", "@pairs", "@seen {", "map @to")
	if d.family == rules.Inet && usesNamedObject {
		family, ip = rules.IPv4, "ip" // see rareObjects
	}
	target := d.jumpOrDrop()
	address1, address2 := drawTwo(g, someAddrs[family])
	port1, port2 := drawTwo(g, somePorts)
	mark1, mark2 := drawTwo(g, someMarks)
	return strings.NewReplacer(
		"$A", address1, "$B", address2, "$C", draw(g, somePrefixes[family]...),
		"$R", draw(g, someRanges[family]...), "$P", port1, "$Q", port2, "$S", g.portRange("-"),
		"$M", mark1, "$N", mark2, "$K", draw(g, someMasks...), "$T",
		draw(g, target, "drop", "accept", "return", "continue"),
		"$ip", ip, "$not", draw(g, "", "", "!= "),
	).Replace(text)
}

// drawTwo draws two different values.
func drawTwo(g *Generator, from []string) (first, second string) {
	first, second = draw(g, from...), draw(g, from...)
	for second == first {
		second = draw(g, from...)
	}
	return first, second
}

// The lists of this file contain parts of rules with the placeholders of nftGenerator.fill. Real
// rulesets contain them less often than the parts that nftGenerator.match, nftGenerator.statement
// and nftGenerator.verdict draw.

// rareMatches contains, for chains at all hooks, matches and statements that may end the rule as a
// failed match does.
var rareMatches = []string{
	"$ip saddr . tcp dport $not@pairs", "$ip daddr . udp dport @pairs",
	"$ip saddr . tcp dport $not{ $C . $S, $A . $P }",
	"$ip saddr . $ip daddr . tcp dport $not{ $A . $B . $P }",
	`iifname . $ip daddr . meta l4proto { "eth0" . $A . tcp, "eth1" . $B . udp }`,
	"meta l4proto . th dport $not{ tcp . $S, udp . $P }",
	"meta mark . tcp dport $not{ $M . $P, $N . $Q }",
	"ct mark . meta mark $not{ $M . $M, $N . $M }",
	"ct state . ct mark $not{ new . $M, established . $N }",
	"th sport . th dport { $P . $Q, $Q . $S }", "icmp type . icmp code $not{ 3 . 1, 8 . 0 }",
	"$ip saddr . $ip daddr $not{ $C . $C, $A . $B }",
	"meta skuid . meta skgid { 0 . 0, 1337 . 1337 }",
	"ct direction . meta l4proto { original . tcp, reply . udp }",
	"ip daddr & 255.0.0.255 == 10.0.0.5", "ip daddr & 0.0.0.1 $not0.0.0.1", "tcp dport & 1 $not1",
	"tcp dport & 0xfff3 $not$P", "tcp dport & 0xfff0 $not80",
	"tcp dport < $P", "tcp dport >= $P", "th dport $not$S",
	"tcp dport != { $P, $Q } tcp sport > 1024",
	"tcp flags $not{ syn, syn | ack }", "tcp flags ! syn,rst", "tcp flags syn,ack / syn,ack,fin",
	"tcp flags & (fin|syn|ack) $not{ syn, fin | ack }",
	"tcp flags & (syn|rst) != 0", "tcp doff 5", "tcp window 1000", "udp length > 8",
	"udp checksum != 0",
	"meta mark & $K $not$M", "meta mark and $K or $M == $N", "meta mark xor $M $not$N",
	"meta mark << 4 == 0x50",
	"meta mark >> 8 == 0x1", "meta mark < $M", "ct mark >= $M", "ct mark xor $M == $N",
	"ct mark & $K == { $M, $N }", "meta mark & $K != { $M, $N }",
	"meta mark != { $M, $N }", "meta mark $not0x1-0x7",
	"ct mark and 0xff vmap { 0 : $T, 5 : drop }",
	"ct status dnat,snat", "ct status $not{ confirmed, assured }",
	"ct status & (dnat|snat) == dnat", "ct status & (dnat|snat) != dnat",
	"ct status & (seen-reply|assured) $not{ seen-reply, assured }",
	"ct status != seen-reply,assured", "ct status & confirmed != 0", "ct state ! new",
	"ct state & (new|established) == new", "ct state & (new|established) != 0",
	"ct state & (new|established) != new",
	"ct state != { new, established }",
	"ct direction original ct mark $M", "ct zone $not5", "ct zone { 1, 5 }", "ct original zone 0",
	"ct original ip daddr 10.9.9.9", "ct l3proto ipv4", "ct protocol tcp", "ct expiration > 1s",
	`ct helper "ftp"`,
	"ct original packets < 5", "ct avgpkt > 10", "ct label 1", "ct count 5", "ct count over 1",
	"fib daddr . mark type $notlocal", "fib daddr type $not{ local, unicast }",
	"fib saddr type $notlocal",
	`fib daddr oifname $not"lo"`, "meta iif lo", "iif != lo", "meta iiftype ether", "meta cpu 0-1",
	"meta length < 10", "meta secpath missing", "meta ipsec missing", "meta hour < \"23:00\"",
	"meta rtclassid 1",
	"ip version 4", "ip hdrlength 5", "ip protocol $nottcp", "ip protocol { tcp, udp }",
	"ip6 nexthdr tcp",
	"ip6 nexthdr != udp", "ip frag-off & 0x1fff != 0", "ip id 1", "ip6 flowlabel 0",
	"exthdr frag exists",
	"tcp option maxseg exists", "tcp option maxseg size 1-1000", "ether type ip",
	"meta protocol $notip6",
	"meta protocol { ip, ip6 }", "@nh,128,32 0x0a090909", "@th,16,16 $P", "@th,0,32 0x4e200050",
	"tcp dport $P tcp dport != $Q", "meta l4proto tcp meta l4proto != udp",
	"meta nfproto ipv4 ip saddr $not10.9.9.9",
	"numgen random mod 10 < 5", "numgen inc mod 3 != 1", "jhash $ip saddr mod 2 $not1",
	"symhash mod 2 0",
	"jhash $ip saddr . $ip daddr mod 4 seed 0xbeef 1", "quota over 1 mbytes",
	"limit rate over 1/second burst 3 packets",
	"limit rate 100 bytes/second", `limit name "l"`, `quota name "q"`, "meta random < 0x80000000",
	"$ip saddr @seen", "tcp dport @seenports", "add @seen { $ip saddr }",
	"update @seen { $ip saddr timeout 10s }",
	"update @seen { $ip saddr limit rate 1/second burst 3 packets }",
	"add @seenports { tcp dport }",
	"delete @seen { $ip saddr }", `osf name "Linux"`,
}

var (
	// rareArriving contains matches for chains at prerouting, and rareLeaving matches for chains at
	// output and postrouting.
	rareArriving = []string{
		"fib saddr . iif type local", "fib daddr . iif type $notlocal",
		"fib saddr . mark . iif oif 0",
		"fib saddr . iif oif $not0", `fib saddr . iif oifname "eth0"`,
		"socket transparent 1 socket mark 0x100",
		"socket wildcard 1", "socket wildcard 0 socket mark $M", "ether saddr 00:00:00:00:00:01",
		"meta skuid $not1337",
		"meta pkttype $not{ host, multicast }", `iifkind "veth"`, "meta iifgroup default",
	}
	rareLeaving = []string{
		"oif $notlo", "meta oifgroup 0", `meta oifkind "veth"`, "rt ip nexthop 10.0.2.2",
		"rt mtu > 100", "rt ipsec missing",
		"meta oiftype loopback", "fib saddr . oif type local", "meta cgroup 1",
		"fib saddr type local",
	}
)

// Statements that usually do not end a rule.
var (
	// rareStatements contains statements for all chains.
	rareStatements = []string{
		"meta mark set $ip daddr map @marks4", "meta mark set $ip saddr map { $C : $M, $A : $N }",
		"ct mark set tcp dport map { $P : $M, $Q : $N }",
		"meta mark set tcp dport map { $P : $M, $Q : $N }",
		"meta mark set udp sport map { $S : $M }", "meta mark set ct mark and 0xff xor $M",
		"meta mark set ct mark & $K", "ct mark set meta mark & $K", "ct mark set ct mark | $M",
		"ct mark set ct mark and $K xor $M",
		"meta mark set meta mark and $K xor $M", "meta mark set meta mark << 4",
		"meta mark set meta mark >> 4",
		"meta mark set numgen random mod 2 offset 5", "meta mark set numgen inc mod 2",
		"meta mark set jhash $ip saddr mod 4",
		"meta mark set jhash $ip saddr . tcp dport mod 2 seed 0xdeadbeef",
		"meta mark set symhash mod 2",
		"ct mark set jhash $ip saddr mod 2", "ct mark set numgen random mod 2",
		"meta mark set meta mark map { $M : $N }",
		"ct mark set meta mark map { $M : $N }", "meta mark set ct mark map { $M : $N }",
		"ct label set 5",
		"meta mark set ip dscp map { 0 : $M }",
		"meta mark set meta l4proto map { tcp : $M, udp : $N }",
		"meta mark set meta skuid map { 0 : $M, 1337 : $N }",
		`meta mark set iifname map { "eth0" : $M }`,
		"meta mark set $ip saddr . tcp dport map { $A . $P : $M, $B . $Q : $N }",
		"meta mark set ct state map { new : $M, established : $N }",
		"meta priority set 1:2", "ct event set new,destroy", "counter packets 1 bytes 2",
		`counter name "c"`,
		`log prefix "x" level debug flags all`, "meta nftrace set 1",
	}
	// rareUnmodeled contains statements for all chains that the model cannot represent.
	rareUnmodeled = []string{
		"tcp dport set $P", "udp dport set $P", "ip daddr set 10.9.9.9", "ip6 daddr set ::1",
		"th dport set $P",
		"tcp urgptr set 1", "ip ttl set 7", "ip dscp set 1", "@th,16,16 set $P",
		"tcp option maxseg size set 1000",
		"reset tcp option sack-perm", "meta pkttype set host", `tcp dport $P ct helper set "ftp"`,
		`ct timeout set "t"`,
		"udp checksum set 0", "ip6 hoplimit set 3",
	}
	// rareBeforeConntrack contains statements for chains before conntrack.
	rareBeforeConntrack = []string{
		"ct zone set meta mark map { $M : 5, $N : 1 }", "ct zone set jhash $ip saddr mod 5",
		`ct zone set iif map { "lo" : 5 }`,
		"ct reply zone set 5", "notrack ct zone set 5", "ct zone set 5 ct zone set 1",
		"ct zone set 5 notrack", "ct zone set 5 ct mark set $M",
	}
	// rareTProxy contains statements for chains at prerouting, except NAT chains.
	rareTProxy = []string{
		"meta l4proto tcp tproxy ip to 127.0.0.1:15001",
		"meta l4proto tcp tproxy to :tcp dport map { $P : 15001, $Q : 15006 }",
		"meta l4proto tcp tproxy to :meta mark map { $M : 15001 }",
		"meta l4proto udp tproxy ip6 to [::1]:15001",
		"meta mark set socket mark", "meta l4proto { tcp, udp } tproxy to :9090 meta mark set $M",
		"meta l4proto tcp tproxy ip to 10.1.2.3",
		"meta l4proto tcp tproxy to :15006 drop",
		"meta l4proto tcp tproxy to :15006 tproxy to :15001",
	}
)

// Ends of rules.
var (
	// rareVerdicts contains ends of rules for all chains, rareNAT for NAT chains, and rareRejects
	// for all other chains.
	rareVerdicts = []string{
		"tcp dport vmap @verdicts",
		"meta l4proto . th dport vmap { tcp . $S : accept, udp . $P : $T }",
		"meta mark . tcp dport vmap { $M . $P : $T, $N . $Q : drop }",
		"meta mark & 0xf vmap { 1 : $T, 5 : accept }",
		"$ip saddr vmap { $C : $T }", "$ip saddr . $ip daddr vmap { $A . $B : $T, $B . $A : drop }",
		"tcp dport vmap { $S : $T }",
		"ct state vmap { new : $T, established : continue, related : accept }",
		"ct mark vmap { $M : $T, $N : drop }", "meta skuid vmap { 0-1000 : $T }",
		`iifname vmap { "eth0" : $T, "lo" : accept }`,
		"ct direction vmap { original : $T }",
		"fib daddr type vmap { local : $T, unicast : continue }",
		"numgen inc mod 3 vmap { 0 : $T, 1 : drop }",
		"jhash $ip saddr mod 2 vmap { 0 : $T, 1 : accept }",
		"meta l4proto { tcp, udp } th dport vmap { $P : $T, $Q : return }",
		"icmp type vmap { echo-request : $T }",
		"ip daddr & 0.0.0.1 vmap { 0.0.0.0 : $T, 0.0.0.1 : accept }",
		"meta mark vmap { 0x0-0x5 : $T, 0x100 : drop }",
	}
	rareNAT = []string{
		"meta l4proto tcp dnat ip to 10.0.2.1-10.0.2.9:80-90", "dnat ip to 10.0.2.1-10.0.2.9",
		"dnat ip to tcp dport map @to",
		"meta l4proto tcp dnat ip addr . port to ip daddr . tcp dport map " +
			"{ 10.9.9.9 . $P : 10.0.2.2 . 9090 }",
		"dnat ip to ip daddr map { 10.9.9.9 : 10.0.2.2, 10.1.2.3 : 10.244.1.5 }",
		"dnat ip to numgen random mod 2 map { 0 : 10.0.2.2, 1 : 10.1.2.3 }",
		"dnat ip to jhash ip saddr mod 2 map { 0 : 10.0.2.2, 1 : 10.1.2.3 }",
		"dnat ip prefix to ip daddr map { 10.9.0.0/16 : 10.1.0.0/16 }",
		"meta l4proto tcp redirect to :$P random",
		"meta l4proto tcp redirect to :$S fully-random,persistent",
		"tcp dport $P redirect to :tcp dport",
		"meta l4proto { tcp, udp } redirect to :th dport map { $P : 15001, $Q : 15006 }",
		"tcp dport vmap { $P : $T } redirect", "meta l4proto udp redirect to :$S",
		"tcp dport { $P, $Q } dnat to :15001",
		"meta l4proto tcp dnat ip6 to [fd00:1::2]:15006", "dnat ip6 to 2001:db8::9",
		"dnat ip to 127.0.0.6",
		"meta l4proto tcp redirect to :meta mark map { $M : 80, $N : 15001 }",
		"meta l4proto tcp redirect to :numgen inc mod 2 map { 0 : 80, 1 : 443 }",
	}
	rareRejects = []string{
		"reject with icmpx type admin-prohibited", "reject with tcp reset",
		"meta l4proto tcp reject with tcp reset",
		"reject with icmpx type host-unreachable", "meta l4proto udp reject",
	}
)

// rareMatch draws a match that nftGenerator.match does not draw.
func (d *nftGenerator) rareMatch() string {
	list := rareMatches
	if d.oneIn(4) {
		list = rareLeaving
		if d.isPrerouting() {
			list = rareArriving
		}
	}
	return d.fill(draw(d.Generator, list...))
}

// rareStatement draws a statement that nftGenerator.statement does not draw.
func (d *nftGenerator) rareStatement() string {
	g := d.Generator
	list := rareStatements
	switch {
	case d.oneIn(12):
		list = rareUnmodeled
	case d.priority < rules.ConntrackPriority && !d.isNAT() && g.oneIn(3):
		list = rareBeforeConntrack
	case d.isPrerouting() && !d.isNAT() && g.oneIn(3):
		list = rareTProxy
	}
	return d.fill(draw(g, list...))
}

// rareVerdict draws the end of a rule, usually one that nftGenerator.verdict does not draw.
func (d *nftGenerator) rareVerdict() string {
	if d.isNAT() && d.isPostrouting() {
		return d.sourceNAT()
	}
	list := rareVerdicts
	switch {
	case d.isNAT() && d.oneIn(2):
		list = rareNAT
	case !d.isNAT() && d.oneIn(6):
		list = rareRejects
	}
	return d.fill(draw(d.Generator, list...))
}

// drawUntilAllowed calls next until the table allows the drawn text. After 20 attempts it returns a
// match on the mark, which every table allows.
func (d *nftGenerator) drawUntilAllowed(next func() string) string {
	for range 20 {
		text := next()
		if d.family != rules.Inet {
			// Only inet tables name the family of the new destination.
			text = strings.NewReplacer("dnat ip to", "dnat to", "tproxy ip to", "tproxy to",
				"dnat ip6 to", "dnat to", "tproxy ip6 to", "tproxy to").Replace(text)
		}
		if isAllowedIn(d.family, text) {
			return text
		}
	}
	return fmt.Sprint("meta mark ", draw(d.Generator, someMarks...))
}

// isAllowedIn reports whether a rule in a table of the family may contain the text.
func isAllowedIn(family rules.Family, text string) bool {
	if family == rules.Inet {
		return true
	}
	if containsAny(text, "dnat", "tproxy") {
		// The addresses in the text are new destinations.
		hasIPv4 := containsAny(text, "10.", "127.")
		hasIPv6 := containsAny(text, "fd00:", "[::1]", "2001:")
		if family == rules.IPv4 && hasIPv6 || family == rules.IPv6 && hasIPv4 {
			return false
		}
	}
	words := strings.FieldsFunc(text, func(r rune) bool { return strings.ContainsRune(" ,{}:", r) })
	hasWord := func(list ...string) bool {
		return slices.ContainsFunc(list, func(w string) bool { return slices.Contains(words, w) })
	}
	if hasWord("nfproto") || containsAny(text, "icmpx") {
		return false
	}
	if family == rules.IPv4 {
		return !hasWord("ip6", "exthdr")
	}
	return !hasWord("ip") && !containsAny(text, "icmp ")
}

// containsAny reports whether the text contains one of the parts.
func containsAny(text string, parts ...string) bool {
	return slices.ContainsFunc(parts, func(p string) bool { return strings.Contains(text, p) })
}
