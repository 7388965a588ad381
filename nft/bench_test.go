package nft

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
	"github.com/sluice-mesh/sluice/rules"
)

// prefixCounts contains the numbers of excluded prefixes of each family with which benchmarks run.
var prefixCounts = []int{0, 1000, 10000}

// sidecar returns the injector's parameters for a dual-stack pod with DNS capture, with n excluded
// prefixes of each family. No two of the prefixes can be merged.
func sidecar(n int) rules.Redirect {
	r := rules.DefaultRedirect()
	r.InboundPorts.All, r.OutboundCIDRs.All = true, true
	r.InboundExcludePorts = rules.Singles[uint16](15020, 15021, 15090)
	r.IPv6 = true
	r.DNS = rules.DNS{Capture: true, All: true}
	for i := range n {
		r.OutboundExcludeCIDRs = append(r.OutboundExcludeCIDRs, prefix4(i), prefix6(i))
	}
	return r
}

// rawRequests contains the encoded requests of a first installation. Every program must at least
// send these requests.
type rawRequests struct{ rules, routing []byte }

func newRawRequests(b *testing.B, rs rules.Ruleset) rawRequests {
	b.Helper()
	t, err := Encode(rs)
	if err != nil {
		b.Fatal(err)
	}
	var routing []byte
	for _, p := range rs.Routing.Policies {
		family := uint8(unix.AF_INET)
		if p.Family == rules.IPv6 {
			family = unix.AF_INET6
		}
		rule := nl.NewNetlinkRequest(unix.RTM_NEWRULE, unix.NLM_F_CREATE|unix.NLM_F_EXCL)
		rule.AddData(&nl.RtMsg{RtMsg: unix.RtMsg{Family: family, Type: unix.FR_ACT_TO_TBL}})
		for kind, value := range map[int]uint32{
			nl.FRA_PRIORITY: uint32(p.Priority), nl.FRA_FWMARK: p.Mark, nl.FRA_FWMASK: ^uint32(0),
			nl.FRA_TABLE: p.Table,
		} {
			rule.AddData(nl.NewRtAttr(kind, native.AppendUint32(nil, value)))
		}
		route := nl.NewNetlinkRequest(unix.RTM_NEWROUTE, unix.NLM_F_CREATE|unix.NLM_F_EXCL)
		route.AddData(&nl.RtMsg{RtMsg: unix.RtMsg{
			Family: family, Scope: unix.RT_SCOPE_HOST, Type: unix.RTN_LOCAL,
			Protocol: unix.RTPROT_BOOT,
		}})
		route.AddData(nl.NewRtAttr(unix.RTA_TABLE, native.AppendUint32(nil, p.Table)))
		route.AddData(nl.NewRtAttr(unix.RTA_OIF, native.AppendUint32(nil, netns.LoopbackIndex)))
		routing = slices.Concat(routing, rule.Serialize(), route.Serialize())
	}
	// The last message is the only one that the kernel acknowledges.
	address := nl.NewNetlinkRequest(unix.RTM_NEWADDR,
		unix.NLM_F_CREATE|unix.NLM_F_EXCL|unix.NLM_F_ACK)
	msg := nl.NewIfAddrmsg(unix.AF_INET6)
	msg.Prefixlen, msg.Flags, msg.Index = 128, unix.IFA_F_NODAD, netns.LoopbackIndex
	address.AddData(msg)
	address.AddData(nl.NewRtAttr(unix.IFA_LOCAL, rules.PassthroughIPv6().AsSlice()))
	return rawRequests{t.Bytes(), append(routing, address.Serialize()...)}
}

func (r rawRequests) send(b *testing.B, ns *netns.NS) {
	exchange(b, ns, unix.NETLINK_ROUTE, r.routing)
	exchange(b, ns, unix.NETLINK_NETFILTER, r.rules)
}

// exchange opens a socket, sends the request, waits for the acknowledgement and closes the socket.
func exchange(b *testing.B, ns *netns.NS, protocol int, request []byte) {
	var fd int
	err := ns.Do(func() (err error) {
		fd, err = unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, protocol)
		return err
	})
	if err != nil {
		b.Fatal(err)
	}
	if len(request) > defaultSendBuffer {
		err = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, len(request))
	}
	if err == nil {
		err = unix.Sendto(fd, request, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK})
	}
	var answer [4096]byte
	if err == nil {
		_, _, err = unix.Recvfrom(fd, answer[:], 0)
	}
	if err == nil {
		err = unix.Close(fd)
	}
	if err != nil {
		b.Fatal(err)
	}
	if errno := int32(native.Uint32(answer[unix.NLMSG_HDRLEN:])); errno != 0 {
		b.Fatalf("the kernel refuses the request: %v", unix.Errno(-errno))
	}
}

// A candidate is an operation to measure in a namespace. prepare is called before the measurement,
// unless it is nil.
type candidate struct {
	name         string
	prepare, run func(*netns.NS)
}

// compare runs the candidates in turn, b.N times each, always in a new namespace. It reports the
// median time of each candidate, and the ratio to the median of the first candidate.
func compare(b *testing.B, candidates ...candidate) {
	b.Helper()
	times := make([][]time.Duration, len(candidates))
	for range b.N {
		for i, c := range candidates {
			ns := netnstest.New(b)
			if c.prepare != nil {
				c.prepare(ns)
			}
			start := time.Now()
			c.run(ns)
			times[i] = append(times[i], time.Since(start))
			ns.Close()
		}
	}
	median := func(d []time.Duration) float64 {
		slices.Sort(d)
		return float64(d[len(d)/2]) / float64(time.Millisecond)
	}
	first := median(times[0])
	for i, c := range candidates {
		b.ReportMetric(median(times[i]), c.name+"-ms")
		if i > 0 {
			b.ReportMetric(median(times[i])/first, c.name+"/"+candidates[0].name)
		}
	}
	b.ReportMetric(0, "ns/op")
}

// benchmarkModes contains the interception modes to measure, with the parameters for n excluded
// prefixes of each family.
var benchmarkModes = []struct {
	namePrefix string // the prefix of the benchmark's name
	redirect   func(n int) rules.Redirect
}{
	{"", sidecar},
	{"tproxy/", func(n int) rules.Redirect {
		r := sidecar(n)
		r.Mode = rules.ModeTProxy
		return r
	}},
}

// benchmark runs do for each interception mode and number of prefixes.
func benchmark(b *testing.B, do func(*testing.B, rules.Redirect)) {
	for _, m := range benchmarkModes {
		for _, n := range prefixCounts {
			b.Run(fmt.Sprintf("%sprefixes=%d", m.namePrefix, n), func(b *testing.B) {
				do(b, m.redirect(n))
			})
		}
	}
}

// BenchmarkApplyFresh compares a first installation, from parameters and from a prepared ruleset,
// with sending the encoded bytes.
func BenchmarkApplyFresh(b *testing.B) {
	benchmark(b, func(b *testing.B, r rules.Redirect) {
		rs := rules.MustCompile(r)
		raw := newRawRequests(b, rs)
		p, err := Prepare(rs)
		if err != nil {
			b.Fatal(err)
		}
		compare(b,
			candidate{name: "raw", run: func(ns *netns.NS) { raw.send(b, ns) }},
			candidate{name: "apply", run: func(ns *netns.NS) {
				mustApply(b, ns, rules.MustCompile(r), Created)
			}},
			candidate{name: "prepared", run: func(ns *netns.NS) {
				if result, err := p.Apply(ns, ApplyOptions{}); err != nil ||
					result.Outcome != Created {
					b.Fatalf("result %v, error %v, want the outcome %s", result, err, Created)
				}
			}})
	})
}

// BenchmarkEncode measures the encoding of a first installation.
func BenchmarkEncode(b *testing.B) {
	benchmark(b, func(b *testing.B, r rules.Redirect) {
		rs := rules.MustCompile(r)
		b.ReportAllocs()
		for b.Loop() {
			if _, err := Encode(rs); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// BenchmarkApplyUnchanged compares an Apply without a change with a first installation.
func BenchmarkApplyUnchanged(b *testing.B) {
	benchmark(b, func(b *testing.B, r rules.Redirect) {
		rs := rules.MustCompile(r)
		install := func(ns *netns.NS) { mustApply(b, ns, rs, Created) }
		compare(b,
			candidate{name: "first", run: install},
			candidate{name: "again", prepare: install, run: func(ns *netns.NS) {
				mustApply(b, ns, rs, Unchanged)
			}})
	})
}

// BenchmarkApplyChange compares the change of one excluded prefix with an Apply without a change.
func BenchmarkApplyChange(b *testing.B) {
	for _, n := range prefixCounts[1:] {
		b.Run(fmt.Sprintf("prefixes=%d", n), func(b *testing.B) {
			from, to := rules.MustCompile(sidecar(n)),
				rules.MustCompile(withAnotherPrefix(sidecar(n)))
			install := func(ns *netns.NS) { mustApply(b, ns, from, Created) }
			compare(b,
				candidate{name: "again", prepare: install, run: func(ns *netns.NS) {
					mustApply(b, ns, from, Unchanged)
				}},
				candidate{name: "change", prepare: install, run: func(ns *netns.NS) {
					mustApply(b, ns, to, Updated)
				}})
		})
	}
}

// withAnotherPrefix returns the parameters with another prefix instead of the first one.
func withAnotherPrefix(r rules.Redirect) rules.Redirect {
	r.OutboundExcludeCIDRs = append(slices.Clone(r.OutboundExcludeCIDRs[1:]),
		netip.MustParsePrefix("192.0.2.0/24"))
	return r
}
