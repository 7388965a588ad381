package nft

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
	"github.com/sluice-mesh/sluice/rules"
)

// A loadExpression is an expression in nft's syntax that loads a value.
type loadExpression struct {
	text string
	// varies reports whether the value may differ between two equal packets.
	varies bool
}

// loadExpressions returns expressions that load keys of meta and ct, properties of sockets and
// routes, a hash, and all bytes of the headers of IPv4 and UDP.
func loadExpressions() []loadExpression {
	var list []loadExpression
	for key, name := range metaKeys {
		switch {
		case strings.Contains(name, "br"):
			continue // the key is only for bridges
		case key == unix.NFT_META_CPU || key == unix.NFT_META_PRANDOM || name == "time" ||
			name == "day" || name == "hour":
			list = append(list, loadExpression{"meta " + name, true})
		default:
			list = append(list, loadExpression{text: "meta " + name})
		}
	}
	for _, name := range []string{
		"state", "direction", "status", "mark", "l3proto", "protocol", "label", "zone", "id",
	} {
		list = append(list, loadExpression{"ct " + name, name == "id"})
	}
	for _, name := range []string{
		"ip saddr", "ip daddr", "packets", "bytes", "avgpkt", "zone",
	} {
		list = append(list, loadExpression{text: "ct original " + name},
			loadExpression{text: "ct reply " + name})
	}
	for at := range 20 {
		list = append(list, loadExpression{text: fmt.Sprintf("@nh,%d,8", 8*at)})
	}
	for at := range 8 {
		list = append(list, loadExpression{text: fmt.Sprintf("@th,%d,8", 8*at)})
	}
	for _, name := range []string{
		"socket transparent", "socket mark", "socket wildcard", "fib daddr type", "fib saddr type",
		"fib daddr . mark type", "fib daddr . oif type", "rt classid", "rt ip nexthop",
		"rt ip tcp mss", "symhash mod 65536",
	} {
		list = append(list, loadExpression{text: name})
	}
	return list
}

// TestRulesChangeOnlyDependentValues compares the values that the kernel loads with and without a
// rule that changes some inputs. Every value that differs must depend on one of these inputs. The
// differences that each row expects prove that the packet matches the rule.
func TestRulesChangeOnlyDependentValues(t *testing.T) {
	const translated = rules.HeaderInput | rules.ConnectionInput | rules.ContentsInput
	const output, prerouting = "output", "prerouting"
	expressions := map[string][]loadExpression{
		output: loadable(t, output), prerouting: loadable(t, prerouting),
	}
	for _, tc := range []struct {
		name, hook, change string
		inputs             rules.Inputs
		differ             []string // expressions whose values must differ
	}{
		{
			"DNAT at output", output,
			"type nat hook output priority -100; udp dport 9 dnat to 10.244.1.5:10",
			translated | rules.InterfaceInput,
			[]string{
				"@nh,152,8", "@th,24,8", "ct reply ip saddr", "ct status", "meta oifname",
				"fib daddr type",
			},
		},
		{
			"DNAT at prerouting", prerouting,
			"type nat hook prerouting priority -100; udp dport 9 dnat to 10.244.1.99:10",
			translated,
			[]string{"@nh,152,8", "@th,24,8", "ct reply ip saddr"},
		},
		{
			"a NAT chain without a rule", output, "type nat hook output priority -100",
			rules.NATInput,
			[]string{"ct status"},
		},
		{
			"a mark and another route", output,
			"type route hook output priority 0; udp dport 9 meta mark set 7 meta priority set 1:2",
			rules.MarkInput | rules.InterfaceInput | rules.StateInput,
			[]string{"meta mark", "meta priority", "meta oifname", "rt ip nexthop"},
		},
		{
			"marks and a label at prerouting", prerouting,
			"type filter hook prerouting priority 0; udp dport 9 meta mark set 7 ct mark set 8 ct label set 3",
			rules.MarkInput | rules.ConntrackMarkInput | rules.StateInput,
			[]string{"meta mark", "ct mark", "ct label"},
		},
		{
			"tproxy", prerouting,
			"type filter hook prerouting priority 0; udp dport 9 tproxy to 127.0.0.1:5000",
			rules.HeaderInput,
			[]string{"meta skuid", "socket transparent"},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			list := expressions[tc.hook]
			without := loadedValues(t, list, tc.hook, "")
			with := loadedValues(t, list, tc.hook, tc.change)
			var differ []string
			for i, x := range list {
				if without[i] == with[i] || x.varies {
					continue
				}
				differ = append(differ, x.text)
				if inputs := inputsOf(t, tc.hook, x.text); inputs&tc.inputs == 0 {
					t.Errorf("%s: %s without and %s with the rule, but inputs %b, want one of %b",
						x.text, without[i], with[i], inputs, tc.inputs)
				}
			}
			t.Logf("the rule changes %v of %d values", differ, len(list))
			for _, text := range tc.differ {
				if !slices.Contains(differ, text) {
					t.Errorf("%s: equal with and without the rule, want a difference", text)
				}
			}
		})
	}
}

// recording returns a table in nft's syntax. Unless change is empty, the table has a chain with the
// type, hook, priority and rules in change. A later chain adds the loaded value of each expression
// to a set.
func recording(expressions []loadExpression, hook, change string) string {
	recordingHook := hook
	if hook == "output" {
		recordingHook = "postrouting"
	}
	text := "table ip t {\n"
	if change != "" {
		text += "chain change { " + change + "\n}\n"
	}
	list := ""
	for i, x := range slices.Backward(expressions) {
		text += fmt.Sprintf("set s%d { typeof %s; flags dynamic; size 9; }\n", i, x.text)
		list += fmt.Sprintf("udp sport 4000 add @s%d { %s }\n", i, x.text)
	}
	return text + fmt.Sprintf("chain c { type filter hook %s priority 200;\n%s}\n}\n",
		recordingHook, list)
}

// loadable returns the expressions that nft and the kernel accept in a recording.
func loadable(t *testing.T, hook string) []loadExpression {
	t.Helper()
	ns := netnstest.New(t)
	var list []loadExpression
	var refused []string
	for _, x := range loadExpressions() {
		cmd := exec.Command(netnstest.RequireBinary(t, "nft"), "-f", "-")
		cmd.Stdin = strings.NewReader("table ip t\ndelete table ip t\n" +
			recording([]loadExpression{x}, hook, ""))
		if err := ns.Do(cmd.Run); err != nil {
			refused = append(refused, x.text)
			continue
		}
		list = append(list, x)
	}
	t.Logf("not loadable: %v", refused)
	return list
}

// loadedValues sends a packet through a recording, and returns the value that the kernel loads for
// each expression.
func loadedValues(
	t *testing.T, expressions []loadExpression, hook, change string,
) []string {
	t.Helper()
	pair := netnstest.NewPair(t)
	command(t, pair.Pod, "rule add fwmark 7 lookup 100\nroute add local default dev lo table 100\n",
		"ip", "-batch", "-")
	load(t, pair.Pod, recording(expressions, hook, change))
	sender, local, remote := pair.Pod, "10.244.1.5:4000", "192.0.2.1:9"
	if hook == "prerouting" {
		sender, local, remote = pair.Neighbor, "10.244.1.1:4000", "10.244.1.5:9"
	}
	// Forbid fragmentation: otherwise the kernel sets a random identification.
	options := func(_, _ string, c syscall.RawConn) error {
		return c.Control(func(fd uintptr) {
			_ = unix.SetsockoptInt(int(fd), unix.SOL_IP, unix.IP_TRANSPARENT, 1)
			_ = unix.SetsockoptInt(int(fd), unix.SOL_IP, unix.IP_MTU_DISCOVER, unix.IP_PMTUDISC_DO)
		})
	}
	open := func(ns *netns.NS, address string) (c net.PacketConn) {
		err := ns.Do(func() (err error) {
			config := net.ListenConfig{Control: options}
			c, err = config.ListenPacket(t.Context(), "udp4", address)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	defer open(pair.Pod, "127.0.0.1:5000").Close()
	c := open(sender, local)
	defer c.Close()
	to := net.UDPAddrFromAddrPort(netip.MustParseAddrPort(remote))
	if _, err := c.WriteTo([]byte("x"), to); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(30 * time.Second); ; {
		found := elementsOf(t, pair.Pod, len(expressions))
		if found[0] != "" {
			return found
		}
		if time.Now().After(deadline) {
			t.Fatal("no packet matched the rules")
		}
	}
}

// elementsOf returns the keys of the elements of each set of a recording.
func elementsOf(t *testing.T, ns *netns.NS, sets int) []string {
	t.Helper()
	found := make([]string, sets)
	withConn(t, ns, func(c *conn) (err error) {
		// Read the first set first. The last rule adds to it: if it has an element, the packet has
		// passed all rules.
		for i := range found {
			_, listed := c.dump(unix.NFT_MSG_GETSETELEM, rules.IPv4, func(m *messages) {
				m.addText(unix.NFTA_SET_ELEM_LIST_TABLE, "t")
				m.addText(unix.NFTA_SET_ELEM_LIST_SET, fmt.Sprintf("s%d", i))
			}, func(_ uint8, a attributes) {
				attributes(a.Get(unix.NFTA_SET_ELEM_LIST_ELEMENTS)).Each(func(_ uint16, el []byte) {
					found[i] += fmt.Sprintf("%x ", constantValue(el, unix.NFTA_SET_ELEM_KEY))
				})
			})
			err = errors.Join(err, listed)
		}
		return err
	})
	return found
}

// inputsOf returns the inputs on which the decoded expression depends.
func inputsOf(t *testing.T, hook, text string) rules.Inputs {
	t.Helper()
	ns := netnstest.New(t)
	load(t, ns, fmt.Sprintf("table ip t {\nset s { typeof %s; flags dynamic; size 9; }\n"+
		"chain c { type filter hook %s priority 0;\nadd @s { %s }\n}\n}\n", text, hook, text))
	rs, err := ReadAll(ns)
	if err != nil {
		t.Fatal(err)
	}
	u, ok := unknownOf(rs.Tables[0].Chain("c").Rules[0])
	if !ok {
		t.Fatalf("%s: decoded as %s, want an unknown action", text, rs)
	}
	return rules.AllInputs &^ u.Ignores
}
