package main

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/sluice-mesh/sluice/nft/testbed"
	"github.com/sluice-mesh/sluice/rules"
	"github.com/sluice-mesh/sluice/rules/cmd/internal/color"
)

// callTimeout is the maximum wait for an answer. Every call is answered within milliseconds.
const callTimeout = 5 * time.Second

// caller is the origin of a call.
type caller struct {
	name  string
	from  testbed.Caller
	owner rules.Owner
}

var (
	app      = caller{"app", testbed.FromPod, testbed.ApplicationOwner}
	proxy    = caller{"proxy", testbed.FromPod, testbed.ProxyOwner}
	neighbor = caller{"neighbor", testbed.FromNeighbor, rules.Owner{}}
)

// String returns the caller as the report names it.
func (c caller) String() string {
	if c.from == testbed.FromPod {
		return fmt.Sprintf("%s (uid %d)", c.name, c.owner.UID)
	}
	return c.name
}

// row is a call to each of several addresses, and the servers that must receive the call, from the
// first to the last.
type row struct {
	caller  caller
	network string // "tcp" or "udp"
	to      []netip.AddrPort
	note    string // printed with the results; may be empty
	servers []testbed.Name
}

// outside returns addresses outside the pod, one of each family.
func outside(port uint16) []netip.AddrPort {
	return endpoints(port, netip.MustParseAddr("10.9.9.9"), netip.MustParseAddr("2001:db8::9"))
}

// pod returns the addresses of the pod, one of each family.
func pod(port uint16) []netip.AddrPort { return endpoints(port, testbed.PodIP4, testbed.PodIP6) }

// lo returns the loopback addresses, one of each family.
func lo(port uint16) []netip.AddrPort {
	return endpoints(port, netip.AddrFrom4([4]byte{127, 0, 0, 1}), netip.IPv6Loopback())
}

// endpoints returns the addresses with the port.
func endpoints(port uint16, addrs ...netip.Addr) []netip.AddrPort {
	var endpoints []netip.AddrPort
	for _, a := range addrs {
		endpoints = append(endpoints, netip.AddrPortFrom(a, port))
	}
	return endpoints
}

// by returns the servers of a row.
func by(servers ...testbed.Name) []testbed.Name { return servers }

// capturedRows are the calls that the redirection must capture.
var capturedRows = []row{
	{app, "tcp", outside(80), "", by(testbed.Outbound, testbed.Outside)},
	{app, "udp", outside(53), "DNS", by(testbed.DNS)},
	{app, "tcp", outside(53), "DNS", by(testbed.DNS)},
	{neighbor, "tcp", pod(8080), "", by(testbed.Inbound, testbed.Application)},
	{proxy, "tcp", pod(8080), "its own pod", by(testbed.Inbound, testbed.Application)},
}

// bypassingRows are the calls that the redirection must not capture.
var bypassingRows = []row{
	{proxy, "tcp", outside(80), "", by(testbed.Outside)},
	{proxy, "udp", outside(53), "DNS", by(testbed.Outside)},
	{app, "tcp", outside(excludedPort), "excluded port", by(testbed.Outside)},
	{app, "udp", outside(443), "not DNS", by(testbed.Outside)},
	{app, "tcp", pod(8080), "its own pod", by(testbed.Application)},
	{app, "tcp", lo(8080), "loopback", by(testbed.Application)},
	{neighbor, "tcp", pod(15021), "health port", by(testbed.Health)},
	{neighbor, "tcp", pod(15008), "tunnel port", by(testbed.Tunnel)},
	{neighbor, "udp", pod(8080), "", by(testbed.Application)},
}

// rowsAfterRemoval are the calls after the redirection was removed.
var rowsAfterRemoval = []row{
	{app, "tcp", outside(80), "", by(testbed.Outside)},
	{app, "udp", outside(53), "DNS", by(testbed.Outside)},
	{neighbor, "tcp", pod(8080), "", by(testbed.Application)},
}

// showCaptured shows the calls that the redirection must capture. It shows each family separately,
// with the destination that the proxy received.
func showCaptured(p *printer, network *testbed.Network) error {
	p.printHeading("Captured: a listener of the proxy (outbound, inbound, dns) accepts " +
		"the connection and knows its original destination")
	var rows []row
	for _, r := range capturedRows {
		for i := range r.to {
			single := r
			single.to = r.to[i : i+1]
			rows = append(rows, single)
		}
	}
	return showAll(p, network, rules.MustCompile(sidecar()), rows)
}

// showNotCaptured shows the calls that the redirection must not capture.
func showNotCaptured(p *printer, network *testbed.Network) error {
	p.printHeading("Not captured: the connection reaches its destination directly")
	return showAll(p, network, rules.MustCompile(sidecar()), bypassingRows)
}

// showAll makes the calls under the ruleset and prints their results.
func showAll(p *printer, network *testbed.Network, rs rules.Ruleset, rows []row) error {
	for _, r := range rows {
		if err := r.show(p, network, rs); err != nil {
			return err
		}
	}
	return nil
}

// show makes the calls of the row and prints their results, in one line. The results must agree
// with the row and with the model.
func (r row) show(p *printer, network *testbed.Network, rs rules.Ruleset) error {
	var destinations, answers []string
	ok := true
	for _, to := range r.to {
		c := r.call(to)
		a, err := network.Dial(c)
		if err != nil {
			return err
		}
		predicted, _ := network.Predict(&rs, c, a.Source)
		ok = ok && r.asExpected(a, to) && a.Agrees(predicted)
		destinations = append(destinations, to.String())
		answers = append(answers, r.describe(a))
	}
	text := fmt.Sprintf("%-16s → %s %-44s → %s", r.caller, r.network,
		strings.Join(destinations, ", "), strings.Join(slices.Compact(answers), "; "))
	if r.note != "" {
		text += p.color.Paint(color.Dim, "  ("+r.note+")")
	}
	p.printResult(ok, text, fmt.Sprint(r.servers))
	return nil
}

// call returns the call of the row to an address.
func (r row) call(to netip.AddrPort) testbed.Call {
	return testbed.Call{
		From: r.caller.from, Owner: r.caller.owner, Network: r.network, To: to,
		Timeout: callTimeout,
	}
}

// isCaptured reports whether the redirection must capture the call.
func (r row) isCaptured() bool {
	return slices.Contains([]testbed.Name{testbed.Outbound, testbed.Inbound, testbed.DNS},
		r.servers[0])
}

// asExpected reports whether the expected servers received the call and know its original
// destination. The proxy cannot know the original destination of a redirected datagram.
func (r row) asExpected(a testbed.Answer, to netip.AddrPort) bool {
	hops := append([]testbed.Hop{a.Hop}, a.Upstream...)
	knowsDestination := r.network != "udp" || !r.isCaptured()
	isExpected := func(h testbed.Hop, want testbed.Name) bool {
		return h.By == want && (h.To == to || !knowsDestination)
	}
	return a.Outcome == testbed.Answered && slices.EqualFunc(hops, r.servers, isExpected)
}

// describe returns the servers that answered, and the destination that a proxy received.
func (r row) describe(a testbed.Answer) string {
	if a.Outcome != testbed.Answered {
		return a.String()
	}
	text := string(a.By)
	if r.isCaptured() && r.network == "tcp" {
		text += ", asked for " + a.To.String()
	}
	for _, h := range a.Upstream {
		text += " → " + string(h.By)
	}
	return text
}
