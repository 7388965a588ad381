package kerneltest_test

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluice-mesh/sluice/compat"
	"github.com/sluice-mesh/sluice/nft"
	"github.com/sluice-mesh/sluice/nft/istio/istiotest"
	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
	"github.com/sluice-mesh/sluice/rules"
	"github.com/sluice-mesh/sluice/rules/diff"
)

// inCgroup calls fn in the namespace while this process is in the cgroup, so that the sockets that
// fn creates belong to the cgroup.
func inCgroup(t *testing.T, dir string, ns *netns.NS, fn func() error) {
	t.Helper()
	before, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		t.Fatal(err)
	}
	old := ""
	for line := range strings.Lines(string(before)) {
		if path, ok := strings.CutPrefix(line, "0::"); ok {
			old = filepath.Join(filepath.Dir(dir), strings.TrimSpace(path))
		}
	}
	move := func(to string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(to, "cgroup.procs"), fmt.Append(nil, os.Getpid()),
			0); err != nil {
			t.Fatal(err)
		}
	}
	move(dir)
	err = ns.Do(fn)
	move(old)
	if err != nil {
		t.Fatal(err)
	}
}

// TestCgroupsOfSenderAndReceiver verifies which packets the expression 'socket cgroupv2' matches:
// at prerouting the packets whose receiving socket is in the cgroup, and at output the packets
// whose sending socket is in it. The model, for which the cgroups are unknown, predicts both
// outcomes.
func TestCgroupsOfSenderAndReceiver(t *testing.T) {
	netnstest.RequireRoot(t)
	dir, cgroup := netnstest.NewCgroup(t, fmt.Sprintf("sluice-test-%d-receiver", os.Getpid()))
	const atOutput, atPrerouting = "output", "prerouting"
	chain := func(h rules.Hook, name string) rules.Chain {
		return rules.Chain{
			Name: name, Base: &rules.Base{Type: rules.Filter, Hook: h, Priority: -150},
			Rules: []rules.Rule{{
				Matches: []rules.Match{
					rules.MatchProtocol{Protocols: []rules.Protocol{rules.UDP}}, cgroup,
				},
				Actions: []rules.Action{rules.Count{}},
			}},
		}
	}
	rs := rules.Ruleset{Tables: []rules.Table{{
		Family: rules.Inet, Name: rules.TableName,
		Chains: []rules.Chain{
			chain(rules.Output, atOutput), chain(rules.Prerouting, atPrerouting),
		},
	}}}
	listen := func() (net.PacketConn, error) { return net.ListenPacket("udp4", "127.0.0.1:0") }
	for _, tc := range []struct {
		name             string
		sender, receiver bool // in the cgroup
		want             []string
	}{
		{"neither socket is in the cgroup", false, false, nil},
		{"the sender is in the cgroup", true, false, []string{atOutput}},
		{"the receiver is in the cgroup", false, true, []string{atPrerouting}},
		{"both sockets are in the cgroup", true, true, []string{atOutput, atPrerouting}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			ns := netnstest.New(t)
			if _, err := nft.Apply(ns, rs); err != nil {
				t.Fatal(err)
			}
			var sender, receiver net.PacketConn
			open := func(inside bool, c *net.PacketConn) {
				fn := func() (err error) {
					*c, err = listen()
					return err
				}
				if inside {
					inCgroup(t, dir, ns, fn)
				} else if err := ns.Do(fn); err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { (*c).Close() })
			}
			open(tc.sender, &sender)
			open(tc.receiver, &receiver)
			if _, err := sender.WriteTo([]byte("x"), receiver.LocalAddr()); err != nil {
				t.Fatal(err)
			}
			live, err := compat.ReadLive(ns, compat.OriginNFT)
			if err != nil {
				t.Fatal(err)
			}
			var matched []string
			table := &live.Ruleset.Tables[tableIndex(live, rules.TableName)]
			for _, c := range table.Chains {
				if c.Rules[0].Hits.Packets > 0 {
					matched = append(matched, c.Name)
				}
			}
			if !slices.Equal(matched, tc.want) {
				t.Errorf("matched rules of the chains %q, want %q", matched, tc.want)
			}
		})
	}
	for _, name := range []string{atOutput, atPrerouting} {
		dropping := rules.Ruleset{Tables: []rules.Table{rs.Tables[0]}}
		dropping.Tables[0].Chains = []rules.Chain{*rs.Tables[0].Chain(name)}
		dropping.Tables[0].Chains[0].Rules = []rules.Rule{{
			Matches: []rules.Match{cgroup}, Actions: []rules.Action{rules.Drop},
		}}
		p := out(0, rules.UDP, "127.0.0.1:1000", "127.0.0.1:2000")
		p.OutInterface = "lo"
		trace := diff.Explain(&dropping, p)
		possible := append(slices.Clone(trace.Alternatives), trace.Outcome)
		if len(possible) != 2 || possible[0].Dropped == possible[1].Dropped {
			t.Errorf("at %s the model predicts %v, want two outcomes, only one of them dropped", name, possible)
		}
	}
}

// TestClosedSocketHasCgroup verifies that a packet of a closed socket has no owner, but is in the
// cgroup of the socket: the FIN that the kernel sends again after the first one was dropped.
func TestClosedSocketHasCgroup(t *testing.T) {
	netnstest.RequireRoot(t)
	dir, cgroup := netnstest.NewCgroup(t, fmt.Sprintf("sluice-test-%d-closed", os.Getpid()))
	ns := netnstest.New(t)
	istiotest.Run(t, ns, fmt.Sprintf("*filter\n"+
		"-A OUTPUT -p tcp --tcp-flags FIN FIN -m owner ! --socket-exists -m cgroup --path %s -j ACCEPT\n"+
		"-A OUTPUT -p tcp --tcp-flags FIN FIN -m owner --socket-exists -j DROP\nCOMMIT\n", cgroup.Path),
		"iptables-legacy-restore")
	var listener net.Listener
	err := ns.Do(func() (err error) {
		listener, err = net.Listen("tcp4", "127.0.0.1:0")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	var client net.Conn
	inCgroup(t, dir, ns, func() (err error) {
		client, err = net.Dial("tcp4", listener.Addr().String())
		return err
	})
	if err := client.Close(); err != nil {
		t.Fatal(err)
	}
	deadline := time.Now().Add(10 * time.Second)
	for {
		live, err := compat.ReadLive(ns, compat.OriginLegacy)
		if err != nil {
			t.Fatal(err)
		}
		filter := live.Ruleset.Tables[tableIndex(live, "filter")].Chain("OUTPUT")
		if filter.Rules[0].Hits.Packets > 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal("the kernel has counted no FIN without an owner in the cgroup")
		}
		time.Sleep(50 * time.Millisecond)
	}
}
