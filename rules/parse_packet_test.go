package rules_test

import (
	"net/netip"
	"reflect"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/sluice-mesh/sluice/rules"
)

func TestParsePacketDefaults(t *testing.T) {
	for _, tc := range []struct{ name, text, want string }{
		{
			"an outgoing packet leaves through eth0 with root as owner and SYN",
			"out tcp 10.244.1.5:40000 > 10.96.0.1:443",
			"out tcp 10.244.1.5:40000 > 10.96.0.1:443 dev eth0 uid 0 gid 0 state new flags syn",
		},
		{
			"the gid defaults to the uid",
			"out udp 10.244.1.5:40000 > 10.96.0.10:53 uid 1000",
			"out udp 10.244.1.5:40000 > 10.96.0.10:53 dev eth0 uid 1000 gid 1000",
		},
		{
			"the user defaults to root if a group is given",
			"out udp 10.244.1.5:1 > 10.96.0.10:53 gid 7",
			"out udp 10.244.1.5:1 > 10.96.0.10:53 dev eth0 uid 0 gid 7",
		},
		{
			"a packet to a loopback address leaves through lo",
			"out tcp 127.0.0.1:1 > 127.0.0.2:2 uid 1",
			"out tcp 127.0.0.1:1 > 127.0.0.2:2 dev lo uid 1 gid 1",
		},
		{
			"a packet to its source address leaves through lo",
			"out tcp [fd00::5]:1 > [fd00::5]:2 uid 1",
			"out tcp [fd00::5]:1 > [fd00::5]:2 dev lo uid 1 gid 1",
		},
		{
			"an incoming packet arrives on eth0", "in tcp 10.1.1.1:1 > 10.244.1.5:80",
			"in tcp 10.1.1.1:1 > 10.244.1.5:80 dev eth0",
		},
		{
			"a packet of an established connection has ACK",
			"in tcp 10.1.1.1:1 > 10.244.1.5:80 state established",
			"in tcp 10.1.1.1:1 > 10.244.1.5:80 state established flags ack",
		},
		{
			"an arrow ->", "in icmp 10.1.1.1 -> 10.244.1.5",
			"in icmp 10.1.1.1 > 10.244.1.5",
		},
		{
			"additional blanks", "  in   icmp 10.1.1.1  >\t10.244.1.5 ",
			"in icmp 10.1.1.1 > 10.244.1.5",
		},
		{
			"a protocol by its number", "in 6 10.1.1.1:1 > 10.244.1.5:80",
			"in tcp 10.1.1.1:1 > 10.244.1.5:80",
		},
		{
			"marks in hexadecimal", "in icmp 10.1.1.1 > 10.244.1.5 mark 0x539 ctmark 1338",
			"in icmp 10.1.1.1 > 10.244.1.5 mark 1337 ctmark 0x53a",
		},
		{
			"an ICMP message is an echo request", "out icmp 10.1.1.1 > 10.244.1.5",
			"out icmp 10.1.1.1 > 10.244.1.5 icmp 8/0 state new",
		},
		{
			"an ICMPv6 message is an echo request", "out ipv6-icmp fd00::1 > fd00::2",
			"out ipv6-icmp fd00::1 > fd00::2 icmp 128/0 state new",
		},
		{
			"an ICMP error is related", "in icmp 10.1.1.1 > 10.244.1.5 icmp 3/1",
			"in icmp 10.1.1.1 > 10.244.1.5 icmp 3/1 state related",
		},
		{
			"an ICMPv6 error is related", "in ipv6-icmp fd00::1 > fd00::2 icmp 1",
			"in ipv6-icmp fd00::1 > fd00::2 icmp 1/0 state related",
		},
		{
			"neighbor discovery is untracked", "in ipv6-icmp fd00::1 > fd00::2 icmp 135",
			"in ipv6-icmp fd00::1 > fd00::2 icmp 135/0 state untracked",
		},
		{
			"the code of a related ICMPv6 redirect is 0",
			"in ipv6-icmp fe80::1 > fd00::2 icmp 137 state related",
			"in ipv6-icmp fe80::1 > fd00::2 icmp 137/0 state related",
		},
		{
			"an ICMP type that conntrack does not know is invalid",
			"in icmp 10.1.1.1 > 10.244.1.5 icmp 9",
			"in icmp 10.1.1.1 > 10.244.1.5 icmp 9/0 state invalid",
		},
		{
			"missing listeners are sorted",
			"in tcp 10.1.1.1:1 > 10.244.1.5:80 missing-listeners 15008,127.0.0.1:15006,015008,[::1]:1",
			"in tcp 10.1.1.1:1 > 10.244.1.5:80 missing-listeners 127.0.0.1:15006,15008,[::1]:1",
		},
		{
			"no flags", "in tcp 10.1.1.1:1 > 10.244.1.5:80 flags none",
			"in tcp 10.1.1.1:1 > 10.244.1.5:80 flags 0x0 state invalid",
		},
		{
			"a connection can begin with ACK", "in tcp 10.1.1.1:1 > 10.244.1.5:80 flags ack,psh",
			"in tcp 10.1.1.1:1 > 10.244.1.5:80 flags psh,ack state new",
		},
		{
			"only an established connection has SYN and ACK",
			"in tcp 10.1.1.1:1 > 10.244.1.5:80 flags syn,ack",
			"in tcp 10.1.1.1:1 > 10.244.1.5:80 flags syn,ack state established",
		},
		{
			"FIN without ACK is invalid", "in tcp 10.1.1.1:1 > 10.244.1.5:80 flags fin",
			"in tcp 10.1.1.1:1 > 10.244.1.5:80 flags fin state invalid",
		},
	} {
		got, want := packet(tc.text), packet(tc.want)
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %q:\n\tgot  %s\n\twant %s", tc.name, tc.text, got, want)
		}
	}
}

func TestEveryFlagHasAName(t *testing.T) {
	p := packet("in tcp 10.1.1.1:1 > 10.244.1.5:80 dev eth0")
	for flags := range 256 {
		p.Flags = rules.TCPFlags(flags)
		if got := packet(p.String()); got.Flags != p.Flags {
			t.Errorf("flags 0x%x: %s is parsed as 0x%x", flags, p, got.Flags)
		}
	}
}

func TestParsePacketReadsAllOptions(t *testing.T) {
	got := packet("out tcp 10.244.1.5:40000 > 10.96.0.1:443 dev net1 uid 1000 gid 2000 mark 1 ctmark 2 state related flags syn,ack no-listener")
	want := rules.Packet{
		Hook: rules.Output, OutInterface: "net1", Protocol: rules.TCP,
		Source:      netip.MustParseAddrPort("10.244.1.5:40000"),
		Destination: netip.MustParseAddrPort("10.96.0.1:443"),
		Owner:       &rules.Owner{UID: 1000, GID: 2000}, Mark: 1, ConntrackMark: 2,
		State: rules.Related, Flags: rules.SYN | rules.ACK, NoListener: true,
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	for _, text := range []string{
		"out tcp 10.244.1.5:81 > 10.1.1.1:1 dev eth0 kernel-socket state established reply flags rst",
		"in udp 10.244.1.5:1 > 224.0.0.251:5353 dev eth0 dst-type multicast copy",
		"in icmp 10.1.1.1 > 10.244.1.5 dev eth0 status snat icmp 3/1 src-type unicast",
		"in tcp 10.1.1.1:1 > 10.244.1.5:80 dev eth0 missing-listeners 127.0.0.1:15006,15008 " +
			"in-address 10.244.1.6 no-reverse-path transparent-socket",
		"out udp 10.244.1.5:1 > 10.1.1.1:1 dev eth0 uid 0 gid 0 transparent-sender bound " +
			"selects-interface",
	} {
		if got := packet(text).String(); got != text {
			t.Errorf("got %s, want %s", got, text)
		}
	}
	got = packet("out sctp [fd00::5]:7 > [fd00::9]:9 no-socket")
	want = rules.Packet{
		Hook: rules.Output, OutInterface: "eth0", Protocol: rules.SCTP,
		Source:      netip.MustParseAddrPort("[fd00::5]:7"),
		Destination: netip.MustParseAddrPort("[fd00::9]:9"),
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func TestParsePacketRejects(t *testing.T) {
	const good = "in tcp 10.1.1.1:1 > 10.244.1.5:80"
	for _, tc := range []struct{ name, text, want string }{
		{"an empty text", "", "want {in|out} PROTOCOL"},
		{"no destination", "in tcp 10.1.1.1:1 >", "want {in|out} PROTOCOL"},
		{"no arrow", "in tcp 10.1.1.1:1 to 10.244.1.5:80", "want {in|out} PROTOCOL"},
		{
			"no direction", "tcp 10.1.1.1:1 -> 10.244.1.5:80",
			`no direction: want in or out before the protocol`,
		},
		{
			"an unknown direction", "forward tcp 10.1.1.1:1 > 10.244.1.5:80",
			`direction "forward" is not in or out`,
		},
		{"an unknown protocol", "in tpc 10.1.1.1:1 > 10.244.1.5:80", `protocol "tpc" is not tcp`},
		{
			"a protocol number that is too high", "in 256 10.1.1.1:1 > 10.244.1.5:80",
			`protocol "256" is not`,
		},
		{
			"a source without a port", "in tcp 10.1.1.1 > 10.244.1.5:80",
			`source "10.1.1.1" is not an address and port`,
		},
		{
			"an ICMPv6 redirect without a state", "in ipv6-icmp fe80::1 > fd00::2 icmp 137",
			"the state of an ICMPv6 redirect is needed",
		},
		{
			"an ICMP reply without a state", "in icmp 10.1.1.1 > 10.244.1.5 icmp 0",
			"the state of an ICMP reply is needed",
		},
		{
			"a port in an ICMP packet", "in icmp 10.1.1.1 > 10.244.1.5:80",
			`destination "10.244.1.5:80" is not an address`,
		},
		{"a zone", "in tcp [fe80::1%eth0]:1 > [fe80::2]:2", `source "[fe80::1%eth0]:1" is not`},
		{
			"two families", "in tcp 10.1.1.1:1 > [fd00::5]:80",
			"source 10.1.1.1 and destination fd00::5 are of different families",
		},
		{"an unknown option", good + " iface eth0", `"iface" is not an option`},
		{"an option without a value", good + " dev", "dev has no value"},
		{"an invalid interface name", good + " dev a/b", `dev "a/b" is not the name of an interface`},
		{"an owner of an incoming packet", good + " uid 0", "apply only to outgoing packets"},
		{"a socket of an incoming packet", good + " no-socket", "apply only to outgoing packets"},
		{
			"a transparent sender of an incoming packet", good + " transparent-sender",
			"transparent-sender applies only to outgoing packets",
		},
		{
			"selects-interface without a socket",
			"out udp 10.1.1.1:1 > 10.1.1.2:80 no-socket selects-interface",
			"selects-interface applies only to outgoing packets of a socket",
		},
		{"an outgoing copy", "out udp 10.1.1.1:1 > 224.0.0.1:80 copy", "copy applies only to incoming packets"},
		{"an unknown state", good + " state NEW", `state "NEW" is not one of new, established`},
		{"an unknown flag", good + " flags syn,xyz", `flag "xyz" is not one of fin, syn`},
		{"flags of UDP", "in udp 10.1.1.1:1 > 10.244.1.5:80 flags syn", "flags apply only to tcp"},
		{
			"a mark that is not a number", good + " mark x",
			`mark "x" is not a number from 0 to 4294967295`,
		},
		{
			"a listener on an invalid port", good + " missing-listeners 15006,65536",
			`missing-listeners "65536" is not a port (0-65535)`,
		},
		{"an octal mark", good + " mark 0o17", `mark "0o17" is not`},
	} {
		_, err := rules.ParsePacket(tc.text)
		if err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %q: error %v, want one that contains %q", tc.name, tc.text, err, tc.want)
		}
	}
}

func TestParsePacketReportsAllErrors(t *testing.T) {
	_, err := rules.ParsePacket("inn tpc 10.1.1.1:99999 > 10.244.1.5:80 dev a/b uid x state old")
	if err == nil {
		t.Fatal("got no error, want one that names all invalid words")
	}
	for _, word := range []string{`"inn"`, `"tpc"`, `"10.1.1.1:99999"`, `"a/b"`, `"x"`, `"old"`} {
		if !strings.Contains(err.Error(), word) {
			t.Errorf("the error does not name %s:\n%v", word, err)
		}
	}
	_, err = rules.ParsePacket("in tpc 10.1.1.1:1 > 10.244.1.5:80")
	if err == nil || strings.Contains(err.Error(), "source") ||
		strings.Contains(err.Error(), "destination") {
		t.Errorf("only the protocol is invalid, but the error is:\n%v", err)
	}
}

func TestPacketStringRoundTrips(t *testing.T) {
	packets := anyPacket(collectParts([]rules.Ruleset{rules.MustCompile(typical(tproxyMode,
		ipv6))}))
	rapid.Check(t, func(t *rapid.T) {
		want := packets.Draw(t, "packet")
		got, err := rules.ParsePacket(want.String())
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Fatalf("%s\n\tis parsed as %s (%v)", want, got, err)
		}
	})
}
