package main

import (
	"bufio"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"

	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/rules"
)

// complete sets the properties of the pod that the parameters lack (the address families, the
// nameservers and the proxy's ids), and returns the redirection.
func (s *system) complete(p *parameters, ns *netns.NS) (rules.Redirect, error) {
	if p.located != nil {
		return p.Redirect, p.notRedirected()
	}
	p.IdentifyProxy(p.names.Users)
	if err := s.setNameservers(p); err != nil {
		return rules.Redirect{}, err
	}
	if len(p.PodIPs) == 0 {
		found, err := s.podAddresses(ns)
		if err != nil {
			return rules.Redirect{}, err
		}
		p.PodIPs = found
	}
	p.Redirect.IPv6 = rules.CapturesIPv6(p.PodIPs, p.DualStack)
	if i := slices.IndexFunc(p.PodIPs, netip.Addr.Is6); i >= 0 && !p.Redirect.IPv6 {
		s.warn("the pod's IPv6 is not captured: it has %s in addition to an IPv4 address, "+
			"and --dual-stack is not set", p.PodIPs[i])
	}
	s.warnOfNameservers(p.Redirect)
	return p.Redirect, nil
}

// assumePod sets unspecified addresses, which stand for any pod, if no address is given.
func (p *parameters) assumePod() {
	if len(p.PodIPs) > 0 {
		return
	}
	p.PodIPs = []netip.Addr{netip.IPv4Unspecified()}
	if p.DualStack {
		p.PodIPs = append(p.PodIPs, netip.IPv6Unspecified())
	}
}

// errNoAddress is the error of [system.podAddresses] if the namespace has only loopback and
// link-local addresses.
var errNoAddress = errors.New("no valid local IP address")

// podAddresses returns the addresses in the namespace that determine whether IPv6 is captured.
func (s *system) podAddresses(ns *netns.NS) ([]netip.Addr, error) {
	addresses, err := s.addresses(ns)
	if err != nil {
		return nil, systemError(err)
	}
	var found []netip.Addr
	for _, a := range addresses {
		if rules.DecidesFamily(a) {
			found = append(found, a.Unmap())
		}
	}
	if len(found) == 0 {
		return nil, systemError(fmt.Errorf("network namespace %s: %w: "+
			"there are only loopback and link-local addresses; "+
			"pass the address of the pod with --pod-ip", ns, errNoAddress))
	}
	return found, nil
}

// setNameservers sets the servers to which DNS queries are captured, from resolv.conf unless the
// parameters name them. If there are none, it disables the capture of DNS.
func (s *system) setNameservers(p *parameters) error {
	dns := &p.Redirect.DNS
	if !dns.Capture || dns.All {
		return nil
	}
	if len(dns.Servers) == 0 {
		found, err := nameservers(s.resolvConf)
		if err != nil {
			return systemError(fmt.Errorf("nameservers for --redirect-dns: %w", err))
		}
		dns.Servers = found
	}
	if len(dns.Servers) == 0 {
		s.warn("DNS is not captured: %s has no nameserver, "+
			"and neither --nameserver nor --capture-all-dns is set", s.resolvConf)
		dns.Capture = false
	}
	return nil
}

// warnOfNameservers warns about servers to which queries bypass the proxy because the family of
// their addresses is not captured.
func (s *system) warnOfNameservers(r rules.Redirect) {
	if !r.DNS.Capture || r.DNS.All || r.IPv6 {
		return
	}
	var missed []string
	for _, server := range r.DNS.Servers {
		if name := server.String(); server.Is6() && !slices.Contains(missed, name) {
			missed = append(missed, name)
		}
	}
	if len(missed) > 0 {
		s.warn("DNS queries to %s are not captured, since the pod's IPv6 is not",
			strings.Join(missed, ", "))
	}
}

// nameservers reads resolv.conf(5) like Istio: all servers are used, not only the first three, and
// invalid addresses are ignored.
func nameservers(path string) ([]netip.Addr, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	var servers []netip.Addr
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		words := strings.Fields(lines.Text())
		if len(words) < 2 || words[0] != "nameserver" {
			continue
		}
		if server, err := rules.ParseServer(words[1]); err == nil {
			servers = append(servers, server)
		}
	}
	return servers, lines.Err()
}
