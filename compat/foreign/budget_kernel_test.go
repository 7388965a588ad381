package foreign_test

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-mesh/sluice/compat"
	"github.com/sluice-mesh/sluice/compat/foreign"
	"github.com/sluice-mesh/sluice/nft/istio/istiotest"
	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
	"github.com/sluice-mesh/sluice/rules"
	"github.com/sluice-mesh/sluice/rules/diff"
)

// A program contains the rules that a known program adds to the network namespace of a pod.
type program struct {
	name string
	nft  string // the program's rules for nft
	// v4 and v6 are the program's rules for iptables-restore and ip6tables-restore.
	v4, v6 string
	// filters reports that the rules at the evaluated hooks only filter packets.
	filters bool
	// ordered reports that the order of the program's and Sluice's chains matters. The kernel does
	// not report the order of chains of iptables-nft and iptables-legacy with equal priorities.
	ordered bool
}

// programs contains programs whose rules do not make captured traffic bypass the proxy. The rules
// have the form in which the programs add them.
var programs = []program{
	{
		name: "CrowdSec", filters: true, nft: `table ip crowdsec {
			set crowdsec-blacklists { type ipv4_addr; flags timeout; elements = { 192.0.2.7 timeout 4h }; }
			chain crowdsec-chain-input {
				type filter hook input priority filter - 10; policy accept;
				ip saddr @crowdsec-blacklists counter drop
			}
			chain crowdsec-chain-forward {
				type filter hook forward priority filter - 10; policy accept;
				ip saddr @crowdsec-blacklists counter drop
			}
		}
		table ip6 crowdsec6 {
			set crowdsec6-blacklists { type ipv6_addr; flags timeout; elements = { 2001:db8::7 timeout 4h }; }
			chain crowdsec6-chain-input {
				type filter hook input priority filter - 10; policy accept;
				ip6 saddr @crowdsec6-blacklists counter drop
			}
		}`,
	},
	{
		name: "a list of sources at prerouting", filters: true, nft: `table ip own {
			set sources { type ipv4_addr; elements = { 192.0.2.7 }; }
			chain in { type filter hook prerouting priority -300; ip saddr @sources drop; }
		}`,
	},
	{
		name: "fail2ban with nft", filters: true, nft: `table inet f2b-table {
			set addr-set-sshd { type ipv4_addr; elements = { 192.0.2.7, 192.0.2.8 }; }
			chain f2b-chain {
				type filter hook input priority filter - 1; policy accept;
				tcp dport { 22 } ip saddr @addr-set-sshd reject with icmp port-unreachable
			}
		}`,
	},
	{
		name: "fail2ban", filters: true,
		v4: `*filter
			:f2b-sshd - [0:0]
			-A INPUT -p tcp -m multiport --dports 22 -j f2b-sshd
			-A f2b-sshd -s 192.0.2.7/32 -j REJECT --reject-with icmp-port-unreachable
			-A f2b-sshd -j RETURN
			COMMIT`,
	},
	{
		name: "Tailscale",
		v4: `*filter
			:ts-forward - [0:0]
			:ts-input - [0:0]
			-A INPUT -j ts-input
			-A FORWARD -j ts-forward
			-A ts-forward -i tailscale0 -j MARK --set-xmark 0x40000/0xff0000
			-A ts-forward -m mark --mark 0x40000/0xff0000 -j ACCEPT
			-A ts-forward -s 100.64.0.0/10 -o tailscale0 -j DROP
			-A ts-forward -o tailscale0 -j ACCEPT
			-A ts-input -s 100.100.1.1/32 -i lo -j ACCEPT
			-A ts-input -s 100.115.92.0/23 ! -i tailscale0 -j RETURN
			-A ts-input -s 100.64.0.0/10 ! -i tailscale0 -j DROP
			-A ts-input -i tailscale0 -j ACCEPT
			-A ts-input -p udp -m udp --dport 41641 -j ACCEPT
			COMMIT
			*nat
			:ts-postrouting - [0:0]
			-A POSTROUTING -j ts-postrouting
			-A ts-postrouting -m mark --mark 0x40000/0xff0000 -j MASQUERADE
			COMMIT`,
		v6: `*filter
			:ts-forward - [0:0]
			:ts-input - [0:0]
			-A INPUT -j ts-input
			-A FORWARD -j ts-forward
			-A ts-forward -i tailscale0 -j MARK --set-xmark 0x40000/0xff0000
			-A ts-forward -m mark --mark 0x40000/0xff0000 -j ACCEPT
			-A ts-forward -o tailscale0 -j ACCEPT
			-A ts-input -s fd7a:115c:a1e0::1/128 -i lo -j ACCEPT
			-A ts-input -i tailscale0 -j ACCEPT
			-A ts-input -p udp -m udp --dport 41641 -j ACCEPT
			COMMIT
			*nat
			:ts-postrouting - [0:0]
			-A POSTROUTING -j ts-postrouting
			-A ts-postrouting -m mark --mark 0x40000/0xff0000 -j MASQUERADE
			COMMIT`,
	},
	{
		name: "Tailscale, with marks of connections",
		v4: `*mangle
			-A PREROUTING -m conntrack --ctstate RELATED,ESTABLISHED -j CONNMARK --restore-mark --nfmask 0xff0000 --ctmask 0xff0000
			-A OUTPUT -m conntrack --ctstate NEW -m mark ! --mark 0x0/0xff0000 -j CONNMARK --save-mark --nfmask 0xff0000 --ctmask 0xff0000
			COMMIT`,
	},
	{
		name: "wg-quick with nft", nft: `table ip wg-quick-wg0 {
			chain preraw {
				type filter hook prerouting priority -300;
				iifname != "wg0" ip daddr 10.9.0.2 fib saddr type != local drop
			}
			chain premangle { type filter hook prerouting priority -150; meta l4proto udp meta mark set ct mark; }
			chain postmangle {
				type filter hook postrouting priority -150;
				meta l4proto udp meta mark 0x0000ca6c ct mark set meta mark
			}
		}
		table ip6 wg-quick-wg0 {
			chain preraw {
				type filter hook prerouting priority -300;
				iifname != "wg0" ip6 daddr fd00:9::2 fib saddr type != local drop
			}
			chain premangle { type filter hook prerouting priority -150; meta l4proto udp meta mark set ct mark; }
			chain postmangle {
				type filter hook postrouting priority -150;
				meta l4proto udp meta mark 0x0000ca6c ct mark set meta mark
			}
		}`,
	},
	{
		name: "wg-quick",
		v4: `*raw
			-A PREROUTING ! -i wg0 -d 10.9.0.2 -m addrtype ! --src-type LOCAL -j DROP
			COMMIT
			*mangle
			-A POSTROUTING -m mark --mark 51820 -p udp -j CONNMARK --save-mark
			-A PREROUTING -p udp -j CONNMARK --restore-mark
			COMMIT`,
	},
	{
		name: "masquerade", nft: `table ip nat {
			chain postrouting { type nat hook postrouting priority srcnat; oifname "eth0" masquerade; }
		}`,
	},
	{
		name: "Docker's masquerading",
		v4: `*nat
			-A POSTROUTING -s 172.17.0.0/16 ! -o docker0 -j MASQUERADE
			COMMIT`,
	},
	{
		name: "Calico's marks",
		v4: `*raw
			-A PREROUTING -j MARK --set-xmark 0x0/0xf0000
			COMMIT`,
	},
	{
		name: "limits", filters: true,
		v4: `*filter
			-A INPUT -p tcp --syn -m limit --limit 10/s -j ACCEPT
			-A INPUT -p tcp --syn -j DROP
			-A OUTPUT -p tcp --syn -m limit --limit 10/s -j ACCEPT
			COMMIT`,
	},
	{
		name: "limits with nft", filters: true, nft: `table inet own {
			chain out { type filter hook output priority 0; tcp flags syn limit rate over 25/second drop; }
			chain in { type filter hook prerouting priority -300; tcp flags syn limit rate over 25/second drop; }
		}`,
	},
}

// firewalld returns the recorded rules of firewalld, with nft and with iptables, without the rules
// of forwarded ports, masquerading, helpers and marks.
func firewalld(t *testing.T) []program {
	t.Helper()
	read := func(path string) string {
		content, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		var lines []string
		for line := range strings.Lines(string(content)) {
			if !slices.ContainsFunc([]string{
				"DNAT", "REDIRECT", "MASQUERADE", "-j CT", "MARK", "-m mark",
				"dnat ", "redirect to", "masquerade", "ct helper set", "meta mark",
			}, func(word string) bool { return strings.Contains(line, word) }) {
				lines = append(lines, line)
			}
		}
		return strings.Join(lines, "")
	}
	const nft, iptables = "../../nft/testdata/programs/", "../save/testdata/programs/"
	return []program{
		{name: "firewalld with nft", nft: read(nft + "firewalld.nft")},
		{
			name: "firewalld", v4: read(iptables + "firewalld-v4.save"),
			v6: read(iptables + "firewalld-v6.save"), ordered: true,
		},
	}
}

// load adds the program's rules to the namespace. variant is the backend of iptables.
func (p *program) load(t *testing.T, ns *netns.NS, variant istiotest.Variant) {
	t.Helper()
	if p.nft != "" {
		istiotest.Run(t, ns, p.nft, "nft", "-f", "-")
	}
	for family, text := range map[rules.Family]string{rules.IPv4: p.v4, rules.IPv6: p.v6} {
		if text != "" {
			istiotest.Restore(t, ns, variant, family, strings.ReplaceAll(text, "\t", "")+"\n")
		}
	}
}

// TestRulesOfProgramsAreDecidedWithinTheBudget inspects pods with the rules of programs. The
// effect must be decided within the memory of the agent's second attempt. The time is longer,
// because the machine may be busy. Rules that only filter packets must not be evaluated.
func TestRulesOfProgramsAreDecidedWithinTheBudget(t *testing.T) {
	enough, tiny := diff.AgentRetryBudget, diff.Budget{Time: 1, Memory: 1}
	enough.Time *= 4
	for _, backend := range []compat.BackendName{compat.BackendNFT, compat.BackendLegacy} {
		b, err := compat.Choose(backend)
		if err != nil {
			t.Fatal(err)
		}
		for _, mode := range []rules.Mode{rules.ModeRedirect, rules.ModeTProxy} {
			for _, dns := range []string{"without DNS", "with DNS"} {
				r := rules.DefaultRedirect()
				r.Mode, r.IPv6, r.OutboundCIDRs.All, r.InboundPorts.All = mode, true, true, true
				r.InboundExcludePorts = []rules.PortRange{rules.Single[uint16](15021)}
				r.DNS.Capture, r.DNS.All = dns == "with DNS", dns == "with DNS"
				desired := rules.MustCompile(r)
				for _, p := range slices.Concat(programs, firewalld(t)) {
					for variantName, variant := range map[string]istiotest.Variant{
						"iptables-nft": istiotest.NFT, "iptables-legacy": istiotest.Legacy,
					} {
						if p.nft != "" && variant == istiotest.Legacy || p.ordered &&
							backend == compat.BackendLegacy && variant == istiotest.NFT {
							continue
						}
						name := strings.Join([]string{
							string(backend), string(mode), dns, p.name, variantName,
						}, ", ")
						t.Run(name, func(t *testing.T) {
							ns := netnstest.NewPod(t)
							if _, err := b.Apply(ns, desired, compat.Snapshot{}); err != nil {
								t.Fatal(err)
							}
							p.load(t, ns, variant)
							budget := enough
							if p.filters {
								budget = tiny
							}
							found := foreign.Inspect(ns, desired, budget)
							if found.Verdict() != foreign.None {
								t.Errorf("verdict %s, want %s:\n%s", found.Verdict(), foreign.None,
									strings.Join(found.Messages(), "\n"))
							}
						})
					}
				}
			}
		}
	}
}
