package bench

import (
	"fmt"
	"strings"

	"github.com/sluice-mesh/sluice/e2e/istio"
	"github.com/sluice-mesh/sluice/nft"
	"github.com/sluice-mesh/sluice/rules"
)

// A Sidecar describes the parameters of an injected dual-stack pod. IPv4 and IPv6 are the numbers
// of excluded prefixes, which are not adjacent.
type Sidecar struct {
	IPv4, IPv6 int
	// Plain omits DNS capture, and therefore all rules other than NAT.
	Plain bool
	// Single makes the pod IPv4-only.
	Single bool
	// Other changes the last prefix.
	Other bool
}

// Flags returns the flags of istio-iptables, which Sluice also accepts, except the pod's addresses,
// which both look up. Linux limits an argument to 128 KiB, which is sufficient for 10,000 prefixes
// of IPv4.
func (s Sidecar) Flags() []string {
	flags := []string{
		"-p", "15001", "-z", "15006", "-u", "1337", "-m", "REDIRECT", "-i", "*", "-x",
		strings.Join(s.prefixes(), ","),
		"-b", "*", "-d", "15090,15021,15020",
	}
	if !s.Single {
		flags = append(flags, "--dual-stack")
	}
	if !s.Plain {
		flags = append(flags, "--redirect-dns", "--capture-all-dns")
	}
	return flags
}

func (s Sidecar) prefixes() []string {
	list := make([]string, 0, s.IPv4+s.IPv6)
	for i := range s.IPv4 {
		list = append(list, fmt.Sprintf("%d.%d.%d.0/24", 1+i/1280, i/128%10, i%128*2))
	}
	for i := range s.IPv6 {
		list = append(list, fmt.Sprintf("fd00:%x::/32", i<<1))
	}
	if s.Other {
		list[s.IPv4-1] = "192.0.2.0/24"
	}
	return list
}

// Redirect returns the parameters in the flags.
func (s Sidecar) Redirect() (rules.Redirect, error) {
	return istio.Configuration{Args: s.Flags(), Pod: istio.DualPod}.Redirect()
}

// Compile returns the ruleset.
func (s Sidecar) Compile() (rules.Ruleset, error) {
	r, err := s.Redirect()
	if err != nil {
		return rules.Ruleset{}, err
	}
	return rules.Compile(r)
}

// prepare returns the ruleset prepared for many pods.
func (s Sidecar) prepare() (*nft.Prepared, error) {
	rs, err := s.Compile()
	if err != nil {
		return nil, err
	}
	return nft.Prepare(rs)
}
