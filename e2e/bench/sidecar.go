package bench

import (
	"fmt"
	"strings"

	"github.com/sluice-mesh/sluice/e2e/istio"
	"github.com/sluice-mesh/sluice/nft"
	"github.com/sluice-mesh/sluice/rules"
)

// A Sidecar is what the injector asks for in a dual-stack pod, with so many excluded prefixes of
// each family, none of which touch.
type Sidecar struct {
	IPv4, IPv6 int
	// Plain leaves DNS capture out, and thus all rules but those of NAT.
	Plain bool
	// Single is for a pod that has IPv4 only.
	Single bool
	// Other puts another prefix instead of the last one.
	Other bool
}

// Flags are those of istio-iptables, which are ours too, but for the pod's addresses, which both
// look up. Linux gives an argument 128 KiB: 10,000 prefixes of IPv4 just fit.
func (s Sidecar) Flags() []string {
	flags := []string{
		"-p", "15001", "-z", "15006", "-u", "1337", "-m", "REDIRECT", "-i", "*", "-x", strings.Join(s.prefixes(), ","),
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

// Redirect is what the flags mean to us.
func (s Sidecar) Redirect() (rules.Redirect, error) {
	return istio.Configuration{Args: s.Flags(), Pod: istio.DualPod}.Redirect()
}

// Compile is the ruleset.
func (s Sidecar) Compile() (rules.Ruleset, error) {
	r, err := s.Redirect()
	if err != nil {
		return rules.Ruleset{}, err
	}
	return rules.Compile(r)
}

// prepare is the ruleset, to be applied in many pods.
func (s Sidecar) prepare() (*nft.Prepared, error) {
	rs, err := s.Compile()
	if err != nil {
		return nil, err
	}
	return nft.Prepare(rs)
}
