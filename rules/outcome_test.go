package rules_test

import (
	"testing"

	"github.com/sluice-mesh/sluice/rules"
)

// Outcomes of the proxy's calls to its own pod in TPROXY mode: the rules at output set the mark.
var (
	selfCallMarked    = rules.Outcome{Mark: rules.SelfCallMark}
	selfCallToInbound = rules.Outcome{
		Redirect: rules.DefaultInboundCapturePort, Mark: rules.SelfCallMark,
	}
)

// connections lists the outcome of each kind of connection with istio-init's default arguments: in
// REDIRECT mode, in TPROXY mode, and in TPROXY mode without deviations (strict).
var connections = []struct {
	name, ipv4, ipv6         string
	redirect, tproxy, strict rules.Outcome
}{
	{
		"a client calls the application",
		"in tcp 10.1.1.1:40000 > 10.244.1.5:8080", "in tcp [2001:db8::1]:40000 > [fd00::5]:8080",
		toInbound, toTransparent, toTransparent,
	},
	{
		"another proxy calls the tunnel port, whose listener answers except in istio-init's TPROXY mode",
		"in tcp 10.1.1.1:40000 > 10.244.1.5:15008", "in tcp [2001:db8::1]:40000 > [fd00::5]:15008",
		uncaptured, uncaptured, toTransparent,
	},
	{
		"the kubelet calls the health port",
		"in tcp 10.1.1.1:40000 > 10.244.1.5:15021", "in tcp [2001:db8::1]:40000 > [fd00::5]:15021",
		uncaptured, uncaptured, uncaptured,
	},
	{
		"a client calls the outbound capture port",
		"in tcp 10.1.1.1:40000 > 10.244.1.5:15001", "in tcp [2001:db8::1]:40000 > [fd00::5]:15001",
		toInbound, toTransparent, toTransparent,
	},
	{
		"a client calls the inbound capture port",
		"in tcp 10.1.1.1:40000 > 10.244.1.5:15006", "in tcp [2001:db8::1]:40000 > [fd00::5]:15006",
		toInbound, toTransparent, toTransparent,
	},
	{
		"a client calls over UDP",
		"in udp 10.1.1.1:40000 > 10.244.1.5:8080", "in udp [2001:db8::1]:40000 > [fd00::5]:8080",
		uncaptured, uncaptured, uncaptured,
	},
	{
		"a client pings the pod",
		"in icmp 10.1.1.1 > 10.244.1.5", "in ipv6-icmp 2001:db8::1 > fd00::5",
		uncaptured, uncaptured, uncaptured,
	},
	{
		"the application calls a service",
		"out tcp 10.244.1.5:40000 > 10.9.9.9:80 uid 1000",
		"out tcp [fd00::5]:40000 > [fd00:9::9]:80 uid 1000",
		toOutbound, toOutbound, toOutbound,
	},
	{
		"the application calls over UDP",
		"out udp 10.244.1.5:40000 > 10.9.9.9:80 uid 1000",
		"out udp [fd00::5]:40000 > [fd00:9::9]:80 uid 1000",
		uncaptured, uncaptured, uncaptured,
	},
	{
		"the application calls itself at the pod's address",
		"out tcp 10.244.1.5:40000 > 10.244.1.5:8080 uid 1000",
		"out tcp [fd00::5]:40000 > [fd00::5]:8080 uid 1000",
		uncaptured, uncaptured, uncaptured,
	},
	{
		"the application calls itself at the loopback address",
		"out tcp 127.0.0.1:40000 > 127.0.0.1:8080 uid 1000",
		"out tcp [::1]:40000 > [::1]:8080 uid 1000",
		uncaptured, uncaptured, uncaptured,
	},
	{
		"the proxy calls the application at the pod's address",
		"out tcp 10.244.1.5:40000 > 10.244.1.5:8080 uid 1337",
		"out tcp [fd00::5]:40000 > [fd00::5]:8080 uid 1337",
		toInbound, selfCallToInbound, selfCallToInbound,
	},
	{
		"a proxy that runs as root calls the application at the pod's address: captured only in TPROXY mode",
		"out tcp 10.244.1.5:40000 > 10.244.1.5:8080 uid 0 gid 1337",
		"out tcp [fd00::5]:40000 > [fd00::5]:8080 uid 0 gid 1337",
		uncaptured, toTransparent, toTransparent,
	},
	{
		"the proxy calls the tunnel port of its own pod",
		"out tcp 10.244.1.5:40000 > 10.244.1.5:15008 uid 1337",
		"out tcp [fd00::5]:40000 > [fd00::5]:15008 uid 1337",
		uncaptured, selfCallMarked, toTransparent,
	},
	{
		"the proxy calls the application at the loopback address",
		"out tcp 127.0.0.1:40000 > 127.0.0.1:8080 uid 1337",
		"out tcp [::1]:40000 > [::1]:8080 uid 1337",
		uncaptured, uncaptured, uncaptured,
	},
	{
		"the proxy calls the application from 127.0.0.6 or ::6",
		"out tcp 127.0.0.6:40000 > 10.244.1.5:8080 dev lo uid 1337",
		"out tcp [::6]:40000 > [fd00::5]:8080 dev lo uid 1337",
		uncaptured, selfCallMarked, selfCallMarked,
	},
	{
		"the proxy calls a service",
		"out tcp 10.244.1.5:40000 > 10.9.9.9:80 uid 1337",
		"out tcp [fd00::5]:40000 > [fd00:9::9]:80 uid 1337",
		uncaptured, uncaptured, uncaptured,
	},
	{
		"a proxy that runs as root calls a service",
		"out tcp 10.244.1.5:40000 > 10.9.9.9:80 uid 0 gid 1337",
		"out tcp [fd00::5]:40000 > [fd00:9::9]:80 uid 0 gid 1337",
		uncaptured, uncaptured, uncaptured,
	},
	{
		"the kernel answers without a socket",
		"out tcp 10.244.1.5:8080 > 10.9.9.9:40000 no-socket state established flags rst",
		"out tcp [fd00::5]:8080 > [fd00:9::9]:40000 no-socket state established flags rst",
		uncaptured, uncaptured, uncaptured,
	},
}

func TestOutcomesOfConnections(t *testing.T) {
	redirect := compile(t, typical(ipv6))
	tproxy := compile(t, typical(ipv6, tproxyMode))
	strict := compile(t, typical(ipv6, tproxyMode, (*rules.Redirect).StrictIstio))
	ipv4Only := compile(t, typical())
	for _, c := range connections {
		for _, text := range []string{c.ipv4, c.ipv6} {
			checkRows(t, redirect, []row{{"REDIRECT: " + c.name, text, c.redirect}})
			checkRows(t, tproxy, []row{{"TPROXY: " + c.name, text, c.tproxy}})
			checkRows(t, strict, []row{{"TPROXY as with istio-init: " + c.name, text, c.strict}})
		}
		checkRows(t, ipv4Only, []row{
			{"an IPv4-only pod: " + c.name, c.ipv4, c.redirect},
			{"IPv6 is not captured in an IPv4-only pod: " + c.name, c.ipv6, uncaptured},
		})
	}
	checkRows(t, redirect, []row{{
		"the proxy calls the application at another loopback address, which exists in IPv4 only",
		"out tcp 127.0.0.1:40000 > 127.0.0.2:8080 uid 1337", toInbound,
	}})
	checkRows(t, tproxy, []row{{
		"in TPROXY mode the proxy calls the application at another loopback address",
		"out tcp 127.0.0.1:40000 > 127.0.0.2:8080 uid 1337", selfCallToInbound,
	}})
}

// TestWithoutIPv6NoChainAffectsIPv6 covers the chains whose rules have no match of the family.
func TestWithoutIPv6NoChainAffectsIPv6(t *testing.T) {
	everything := func(r *rules.Redirect) {
		r.DNS, r.DropInvalid = rules.DNS{Capture: true, All: true}, true
		r.RerouteInterfaces = interfaceNames("eth1")
		r.OwnerGroups = rules.GroupSelection{IDs: ids("202")}
	}
	rows := []row{
		{"DNS", "out udp [fd00::5]:40000 > [fd00::a]:53 uid 1000 gid 202", uncaptured},
		{"DNS of the proxy", "out udp [fd00::5]:40000 > [fd00::a]:53 uid 1337", uncaptured},
		{"answers to the proxy", "in udp [fd00::a]:53 > [fd00::5]:40000", uncaptured},
		{"invalid packets", "in tcp [fd00::9]:1 > [fd00::5]:80 state invalid", uncaptured},
		{"connections to the pod", "in tcp [fd00::9]:1 > [fd00::5]:80", uncaptured},
		{
			"connections from a rerouted interface", "in tcp [fd00::9]:1 > [fd00::6]:80 dev eth1",
			uncaptured,
		},
		{
			"connections of a captured group",
			"out tcp [fd00::5]:1 > [fd00::9]:80 uid 1000 gid 202", uncaptured,
		},
		{"the proxy's calls to its own pod", "out tcp [fd00::5]:1 > [fd00::5]:80 uid 1337", uncaptured},
		{
			"marked connections",
			"out tcp [fd00::5]:1 > [fd00::9]:80 ctmark 0x539 state established",
			rules.Outcome{ConntrackMark: 0x539},
		},
	}
	checkRows(t, compile(t, typical(everything)), rows)
	checkRows(t, compile(t, typical(everything, tproxyMode)), rows)
}
