package compat_test

import (
	"os"
	"strings"
	"testing"

	"github.com/sluice-mesh/sluice/compat/save"
	"github.com/sluice-mesh/sluice/nft/istio/istiotest"
	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
	"github.com/sluice-mesh/sluice/rules"
	"github.com/sluice-mesh/sluice/rules/diff"
	"github.com/sluice-mesh/sluice/rules/rulestest"
)

// TestSavedExtensionsEqualTheLoadedRules loads rules with matches and targets that the model does
// not represent, and compares the output of iptables-save with the rules in the kernel. The rules
// of a group have different parameters. Therefore each rule must equal only itself.
func TestSavedExtensionsEqualTheLoadedRules(t *testing.T) {
	both := []rules.Family{rules.IPv4, rules.IPv6}
	v4, v6 := both[:1], both[1:]
	mangle, raw, nat := "*mangle\n-A OUTPUT ", "*raw\n-A OUTPUT ", "*nat\n-A OUTPUT "
	for _, group := range rulestest.Sample([]struct {
		name     string
		families []rules.Family
		prefix   string // the text before each rule
		list     []string
	}{
		{"NFQUEUE", both, mangle, []string{
			"-j NFQUEUE", "-j NFQUEUE --queue-num 1", "-j NFQUEUE --queue-num 1 --queue-bypass",
			"-j NFQUEUE --queue-balance 1:3",
			"-j NFQUEUE --queue-balance 1:3 --queue-bypass --queue-cpu-fanout",
		}},
		{"addrtype", both, mangle, []string{
			"-m addrtype --dst-type LOCAL --limit-iface-out -j DROP",
			"-m addrtype ! --dst-type LOCAL --limit-iface-out -j DROP",
			"-m addrtype --src-type LOCAL --limit-iface-out -j DROP",
			"-m addrtype --src-type MULTICAST --dst-type LOCAL -m addrtype --dst-type UNICAST " +
				"--limit-iface-out -j DROP",
		}},
		{"addrtype of IPv6", v6, mangle, []string{
			"-m addrtype --dst-type UNICAST -j DROP", "-m addrtype --dst-type LOCAL,UNICAST -j DROP",
			"-m addrtype ! --src-type UNREACHABLE -j DROP", "-m addrtype --dst-type ANYCAST -j DROP",
			"-m addrtype --dst-type LOCAL,ANYCAST -j DROP",
		}},
		{"addrtype of an incoming interface", both, "*mangle\n-A PREROUTING ", []string{
			"-m addrtype --dst-type LOCAL --limit-iface-in -j DROP", "-m addrtype --dst-type LOCAL -j DROP",
		}},
		{"REDIRECT", both, nat, []string{
			"-p tcp -j REDIRECT --random", "-p tcp -j REDIRECT --to-ports 80-90 --random",
			"-p tcp -j REDIRECT --to-ports 80-91 --random", "-p tcp -j REDIRECT --to-ports 80-90",
		}},
		{"DNAT", v4, nat, []string{
			"-p tcp -j DNAT --to-destination 10.0.0.1:80-90 --random",
			"-p tcp -j DNAT --to-destination 10.0.0.1:80-91 --random",
			"-p tcp -j DNAT --to-destination 10.0.0.1-10.0.0.5 --random",
			"-p tcp -j DNAT --to-destination 10.0.0.1-10.0.0.5 --persistent",
			"-p tcp -j DNAT --to-destination 10.0.0.1-10.0.0.5 --random --persistent",
			"-p tcp -j DNAT --to-destination 10.0.0.1-10.0.0.5:80 --random",
			"-p tcp -j DNAT --to-destination :80-90 --random",
			"-p tcp -j DNAT --to-destination 10.0.0.1 --random",
		}},
		{"DNAT of IPv6", v6, nat, []string{
			"-p tcp -j DNAT --to-destination [fd00::1]:80-90 --random",
			"-p tcp -j DNAT --to-destination fd00::1-fd00::5 --persistent",
		}},
		{"NETMAP", v4, nat, []string{
			"-j NETMAP --to 10.0.0.0/8", "-j NETMAP --to 10.0.0.0/255.255.0.0", "-j NETMAP --to 10.0.0.1",
		}},
		{"NETMAP of IPv6", v6, nat, []string{"-j NETMAP --to fd00::/64", "-j NETMAP --to fd00::1"}},
		{"connbytes", both, mangle, []string{
			"-m connbytes --connbytes 10 --connbytes-dir both --connbytes-mode bytes -j DROP",
			"-m connbytes --connbytes 10:20 --connbytes-dir both --connbytes-mode bytes -j DROP",
			"-m connbytes ! --connbytes 10:20 --connbytes-dir both --connbytes-mode bytes -j DROP",
			"-m connbytes --connbytes 10:20 --connbytes-dir reply --connbytes-mode bytes -j DROP",
			"-m connbytes --connbytes 10:20 --connbytes-dir both --connbytes-mode avgpkt -j DROP",
		}},
		{"connlimit", both, mangle, []string{
			"-m connlimit --connlimit-above 3 -j DROP", "-m connlimit --connlimit-upto 3 -j DROP",
			"-m connlimit --connlimit-above 4 -j DROP",
			"-m connlimit --connlimit-above 3 --connlimit-mask 24 -j DROP",
			"-m connlimit --connlimit-above 3 --connlimit-daddr -j DROP",
		}},
		{"hashlimit", both, mangle, []string{
			"-m hashlimit --hashlimit-upto 5/sec --hashlimit-name a -j DROP",
			"-m hashlimit --hashlimit-above 5/sec --hashlimit-name a -j DROP",
			"-m hashlimit --hashlimit-upto 7/min --hashlimit-name a -j DROP",
			"-m hashlimit --hashlimit-upto 5/sec --hashlimit-name b -j DROP",
			"-m hashlimit --hashlimit-upto 5/sec --hashlimit-burst 9 --hashlimit-name a -j DROP",
			"-m hashlimit --hashlimit-upto 5/sec --hashlimit-mode srcip,dstport --hashlimit-name a " +
				"-j DROP",
			"-m hashlimit --hashlimit-upto 5/sec --hashlimit-mode srcip --hashlimit-srcmask 24 " +
				"--hashlimit-name a --hashlimit-htable-size 50 --hashlimit-htable-max 100 " +
				"--hashlimit-htable-gcinterval 5 --hashlimit-htable-expire 7 -j DROP",
		}},
		{"recent", both, mangle, []string{
			"-m recent --set -j DROP", "-m recent --rcheck -j DROP", "-m recent ! --rcheck -j DROP",
			"-m recent --rcheck --seconds 10800 --reap --name KUBE-SEP -j DROP",
			"-m recent --update --seconds 5 --hitcount 3 --rttl --name KUBE-SEP -j DROP",
			"-m recent --remove --rdest -j DROP", "-m recent --remove -j DROP",
		}},
		{"recent with a mask", v4, mangle, []string{
			"-m recent --rcheck --mask 255.255.255.0 -j DROP", "-m recent --rcheck -j DROP",
		}},
		{"u32", both, mangle, []string{
			`-m u32 --u32 "6&0xFF=1" -j DROP`, `-m u32 ! --u32 "6&0xFF=1" -j DROP`,
			`-m u32 --u32 "6 & 0xFF = 1:1, 3:5 && 0 >> 22 & 0x3C @ 0 << 1 = 0" -j DROP`,
		}},
		{"string", both, mangle, []string{
			`-m string --algo bm --string "a b" -j DROP`, `-m string --algo kmp --string "a b" -j DROP`,
			`-m string --algo bm --hex-string "|61 00|b" -j DROP`,
			`-m string --algo bm ! --string ab --icase -j DROP`,
			`-m string --algo bm --string ab --from 3 --to 90 -j DROP`,
		}},
		{"time", both, mangle, []string{
			"-m time --timestart 08:30 --timestop 17:00:05 -j DROP", "-m time -j DROP",
			"-m time --weekdays Sat,7 -j DROP", "-m time ! --weekdays Sat,Sun -j DROP",
			"-m time --monthdays 1,31 -j DROP", "-m time ! --monthdays 1,31 -j DROP",
			"-m time --datestart 2026-01-02T03:04:05 --datestop 2030-01-01 --kerneltz -j DROP",
			"-m time --timestart 20:00 --timestop 04:00 --contiguous -j DROP",
		}},
		{"tcpmss", both, mangle, []string{
			"-p tcp -m tcpmss --mss 100 -j DROP", "-p tcp -m tcpmss ! --mss 100 -j DROP",
			"-p tcp -m tcpmss --mss 100:200 -j DROP",
		}},
		{"mac", both, "*mangle\n-A PREROUTING ", []string{
			"-m mac --mac-source aa:bb:cc:dd:ee:ff -j DROP",
			"-m mac ! --mac-source aa:bb:cc:dd:ee:ff -j DROP",
			"-m mac --mac-source 00:bb:cc:dd:ee:ff -j DROP",
		}},
		{"helper, pkttype and quota", both, mangle, []string{
			"-m helper --helper ftp -j DROP", "-m helper ! --helper ftp -j DROP",
			"-m helper --helper sip -j DROP", "-m pkttype --pkt-type broadcast -j DROP",
			"-m pkttype ! --pkt-type broadcast -j DROP", "-m pkttype --pkt-type unicast -j DROP",
			"-m quota --quota 1000 -j DROP", "-m quota ! --quota 1000 -j DROP",
		}},
		{"physdev", both, "*mangle\n-A PREROUTING ", []string{
			"-m physdev --physdev-in eth0 -j DROP", "-m physdev ! --physdev-in eth0 -j DROP",
			"-m physdev --physdev-in eth+ -j DROP", "-m physdev --physdev-in eth -j DROP",
			"-m physdev ! --physdev-is-in -j DROP", "-m physdev --physdev-is-in -j DROP",
			"-m physdev --physdev-in v0 ! --physdev-is-bridged -j DROP",
		}},
		{"socket", both, "*mangle\n-A PREROUTING ", []string{
			"-m socket -j DROP", "-m socket --nowildcard -j DROP", "-m socket --restore-skmark -j DROP",
			"-m socket --transparent --restore-skmark -j DROP", "-m socket --transparent -j DROP",
		}},
		{"frag", v6, mangle, []string{
			"-m frag --fragid 5 -j DROP", "-m frag ! --fragid 5:10 -j DROP", "-m frag --fragfirst -j DROP",
			"-m frag --fragid 5 --fragmore --fragres -j DROP", "-m frag --fraglast -j DROP",
		}},
		{"ipv6header", v6, mangle, []string{
			"-m ipv6header --header hop,frag -j DROP", "-m ipv6header ! --header hop,frag -j DROP",
			"-m ipv6header --header hop,frag --soft -j DROP", "-m ipv6header --header esp,auth -j DROP",
			"-m ipv6header --header none,prot,dst,route -j DROP",
		}},
		{"TEE", v4, mangle, []string{
			"-j TEE --gateway 10.0.0.1", "-j TEE --gateway 10.0.0.2", "-j TEE --gateway 10.0.0.1 --oif lo",
		}},
		{"CT", both, raw, []string{
			"-j CT --zone-orig 3", "-j CT --zone-reply 3", "-j CT --zone mark", "-j CT --zone-orig mark",
			"-j CT --ctevents new,destroy", "-j CT --zone 5 --ctevents new", "-j CT --expevents new",
		}},
	}, os.Getenv) {
		for _, f := range group.families {
			t.Run(group.name+" "+f.String(), func(t *testing.T) {
				testSaved(t, f, group.prefix, group.list)
			})
		}
	}
}

// testSaved loads each rule into a namespace of its own, with iptables-legacy and with
// iptables-nft. It compares each output of iptables-save with the rules of the same namespace, and
// with the rules of a sample of the other namespaces.
func testSaved(t *testing.T, f rules.Family, prefix string, list []string) {
	type pair struct{ saved, live int }
	var same, others []pair
	for i := range list {
		same = append(same, pair{i, i})
		for j := range list {
			if i != j {
				others = append(others, pair{i, j})
			}
		}
	}
	for variant, read := range tableReaders() {
		var saved, live []diff.Side
		for _, rule := range list {
			ns := netnstest.New(t)
			istiotest.Restore(t, ns, variant, f, prefix+rule+"\nCOMMIT\n")
			tables, err := save.Parse(f, "text", strings.NewReader(istiotest.Save(t, ns, variant, f)))
			if err != nil {
				t.Fatal(err)
			}
			saved = append(saved, diff.Side{Ruleset: rules.Ruleset{Tables: tables}})
			live = append(live, diff.Side{Ruleset: rules.Ruleset{Tables: read(ns)}})
		}
		for _, p := range append(same, rulestest.Sample(others, os.Getenv)...) {
			result := diff.Decide(saved[p.saved], live[p.live], diff.Options{Families: []rules.Family{f}})
			if got := result.StrictVerdict(); (got == diff.Equivalent) != (p.saved == p.live) {
				t.Errorf("%v: the saved rule %s and the loaded rule %s: %s, want equivalent: %t",
					variant, list[p.saved], list[p.live], got, p.saved == p.live)
			}
		}
	}
}
