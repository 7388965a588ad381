package kerneltest

import (
	"slices"
	"strings"

	"github.com/sluice-mesh/sluice/rules"
)

// synonyms maps a word of a rule to other spellings that iptables accepts for it.
var synonyms = map[string][]string{
	"-p": {"--protocol", "--proto"}, "-s": {"--source", "--src"}, "-d": {"--destination", "--dst"},
	"-i": {"--in-interface"}, "-o": {"--out-interface"}, "-j": {"--jump"}, "-g": {"--goto"},
	"--dport": {"--destination-port", "--destination-por"}, "--sport": {"--source-port"},
	"--dports": {"--destination-ports"}, "--sports": {"--source-ports"},
	"--on-port": {"--on-por"}, "--to-ports": {"--to-port"}, "--to-destination": {"--to-dest"},
	"--uid-owner": {"--uid-own"}, "--set-xmark": {"--set-xmar"},
	// addresses
	"10.0.0.0/8": {"10/8", "10.1.2.3/010"}, "127.0.0.0/8": {"127/255.0x0.0.0"},
	"192.0.2.0/25": {"192.0.2/25"}, "10.0.0.0/255.0.255.0": {"10/255.0.255.0"},
	"10.1.2.3": {"0xa.01.02.3"},
}

// reword returns the rule with other names of options, in another order, or with more spaces. It
// may also add counters, a comment or a list of sources.
func (d xtablesGenerator) reword(r Rule) Rule {
	g := d.Generator
	r = slices.Clone(r)
	for i, term := range r {
		if strings.Contains(term, `"`) {
			continue
		}
		words := strings.Fields(term)
		for j, word := range words {
			if known := synonyms[word]; known != nil && g.oneIn(3) {
				words[j] = draw(g, known...)
			}
			if word == "tcp" && j > 0 && g.oneIn(4) && (words[j-1] == "-p" ||
				strings.HasPrefix(words[j-1], "--proto")) {
				words[j] = draw(g, "6", "TCP")
			}
		}
		r[i] = strings.Join(words, draw(g, " ", " ", "  ", "\t"))
	}
	// The protocol must precede the matches that need it.
	from := 0
	for from < len(r) && (strings.Contains(r[from], "-p") || strings.Contains(r[from], "--proto")) {
		from++
	}
	movable := r[from:]
	if g.oneIn(2) && !slices.ContainsFunc(movable, needsEarlierOption) {
		g.random.Shuffle(len(movable), func(i, j int) {
			movable[i], movable[j] = movable[j], movable[i]
		})
	}
	switch g.below(8) {
	case 0:
		r = append(Rule{"-c 5 6"}, r...)
	case 1:
		r = append(r, `-m comment --comment "-j DROP ! -p \"tcp\""`)
	case 2:
		if g.oneIn(2) && !slices.ContainsFunc(r, func(t string) bool {
			return option(t) == "-s" || strings.Contains(t, "--sou") || strings.Contains(t, "--src")
		}) {
			r = append(r, "-s "+draw(g, someAddrs[d.family]...)+","+
				draw(g, somePrefixes[d.family]...))
		}
	}
	return r
}

// needsEarlierOption reports whether the term may belong to a match that an earlier option loads,
// such as --dport after -p tcp. It returns true for all terms that begin with a long option, except
// the options for interfaces.
func needsEarlierOption(term string) bool {
	first := strings.Fields(strings.TrimPrefix(term, "! "))[0]
	return strings.HasPrefix(first, "--") && !strings.HasPrefix(first, "--in-") &&
		!strings.HasPrefix(first, "--out-")
}

// Matches and targets with rarely used options, by the protocol, family or table that they need.
var (
	// The list omits the match devgroup. Linux 6.18 accepts --src-group in a chain of iptables-nft
	// to which OUTPUT jumps. devgroup_mt (net/netfilter/xt_devgroup.c) then dereferences a nil
	// pointer, because there is no incoming interface, and the kernel kills the sending process.
	rareXTMatches = []string{
		"-m helper --helper ftp", "-m conntrack --ctexpire 0:100",
		"-m conntrack ! --ctstate NEW,ESTABLISHED ! --ctstatus CONFIRMED",
		"-m conntrack --ctproto 6 --ctdir ORIGINAL", "-m conntrack ! --ctproto 47",
		"-m conntrack --ctorigdstport 80:443 --ctstate NEW", "-m length ! --length 60",
		"-m cluster --cluster-total-nodes 2 --cluster-local-node 1 --cluster-hash-seed 0x1",
		`-m bpf --bytecode "4,48 0 0 9,21 0 1 6,6 0 0 1,6 0 0 0"`,
		"-m mark --mark 0x5 -m mark ! --mark 0x7",
		"-m statistic --mode random ! --probability 0.3",
		"-m connmark --mark 0x5/0xf -m mark --mark 0x0/0xff",
		"-m conntrack --ctstate RELATED -m conntrack ! --ctstate ESTABLISHED",
		"-m u32 --u32 6&0xff=6",
		"-m comment --comment -j",
	}
	rareXTMatches4 = []string{
		"-s 0/0", "! -d 0/0", "-d 10.1/16", "-d 0", "-m iprange --src-range 10-11",
		"-m iprange --src-range 11-10", "-m iprange ! --dst-range 11-10",
		"-f", "! -f", "-m conntrack --ctorigsrc 10.0.0.0/8",
		"-m conntrack --ctorigdst 10.1.2.3 --ctstate NEW", "-m conntrack --ctreplsrc 10.1.2.3",
	}
	rareXTMatches6 = []string{
		"-m ipv6header --header prot --soft", "-m frag --fragid 1", "-m rt --rt-type 0",
		"-m hbh --hbh-len 1", "-m dst --dst-len 1",
	}
	rareXTMatchesTCP = []string{
		"-m tcp --dport 80 -m tcp --sport 1000:65535", "-m ecn --ecn-tcp-cwr", "--tcp-option 2",
		"-m connlimit --connlimit-above 0", "-m tcp ! --dport 1:79 ! --sport 53",
	}
	rareXTTargets = []string{
		"-j CONNMARK --set-mark 0x5 --left-shift-mark 4",
		"-j CONNMARK --save-mark --nfmask 0xff --ctmask 0xf0", "-j CONNMARK --set-xmark 0x5/0xff",
		"-j CONNMARK --restore-mark --nfmask 0x0 --ctmask 0xff", "-j MARK --set-xmark 0x5/0x0",
		"-j NFLOG --nflog-prefix -j", "-j IDLETIMER --timeout 5 --label x",
		"-j LOG --log-prefix \"! -p tcp\" --log-uid",
	}
	rareXTRaw = []string{
		"-j CT --ctevents new", "-j CT --zone mark", "-j CT --zone-reply 5",
		"-j CT --zone-orig mark", "-j CT --zone-orig 5", "-j CT --zone 5 --ctevents new",
		"-j CT --zone 65535",
	}
	rareXTNAT4 = []string{
		"-j DNAT --to-destination 10.0.2.1-10.0.2.9 --random",
		"-j DNAT --to-destination 10.0.2.1-10.0.2.9:80-90 --persistent",
		"-j NETMAP --to 10.9.9.0/24",
		"-j REDIRECT --to-ports 80-443 --random", "-j DNAT --to-destination :53-443",
		"-j DNAT --to-destination 10.0.2.1:80-443/8080",
	}
)

// rareMatch draws a match with rarely used options, for xtablesGenerator.match.
func (d xtablesGenerator) rareMatch(protocol string) string {
	list := rareXTMatches
	switch {
	case protocol == "tcp" && d.oneIn(2):
		list = rareXTMatchesTCP
	case d.family == rules.IPv4 && d.oneIn(3):
		list = rareXTMatches4
	case d.family == rules.IPv6 && d.oneIn(3):
		list = rareXTMatches6
	}
	return draw(d.Generator, list...)
}

// rareTarget draws a target with rarely used options, for xtablesGenerator.target, and the protocol
// that the target needs.
func (d xtablesGenerator) rareTarget() (target, protocol string) {
	g := d.Generator
	switch {
	case d.table == "raw" && g.oneIn(2):
		if g.oneIn(8) {
			return "-j CT --helper ftp", "tcp"
		}
		return draw(g, rareXTRaw...), ""
	case d.table == "nat" && d.family == rules.IPv4 && g.oneIn(2):
		return draw(g, rareXTNAT4...), "tcp"
	case d.table == "filter" && g.oneIn(2):
		if g.oneIn(2) {
			return "-j REJECT --reject-with tcp-reset", "tcp"
		}
		rejectWith := "icmp-admin-prohibited"
		if d.family == rules.IPv6 {
			rejectWith = "icmp6-adm-prohibited"
		}
		return "-j REJECT --reject-with " + rejectWith, ""
	case d.table == "mangle" && g.oneIn(6):
		return draw(g, "-j TCPOPTSTRIP --strip-options sack-permitted", "-j ECN --ecn-tcp-remove",
			"-j NFQUEUE --queue-num 0 --queue-bypass"), "tcp"
	}
	return draw(g, rareXTTargets...), ""
}
