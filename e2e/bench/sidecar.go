package bench

import (
	"fmt"
	"strings"

	"github.com/sluice-mesh/sluice/e2e/istio"
	"github.com/sluice-mesh/sluice/rules"
)

// A Sidecar describes the parameters of an injected pod. By default, the pod is dual-stack and
// captures DNS.
type Sidecar struct {
	// IPv4Prefixes and IPv6Prefixes are the numbers of excluded prefixes. The prefixes are not
	// adjacent.
	IPv4Prefixes, IPv6Prefixes int
	// WithoutDNS disables DNS capture. Then all rules are NAT rules.
	WithoutDNS bool
	// IPv4Only makes the pod IPv4-only.
	IPv4Only bool
	// ReplaceLastPrefix replaces the last IPv4 prefix with another one. It requires at least one
	// IPv4 prefix.
	ReplaceLastPrefix bool
}

// Flags returns the parameters as flags that both istio-iptables and Sluice accept. The pod's
// addresses are not among the flags, because both programs look them up. Linux limits an argument
// to 128 KiB, which is sufficient for 10,000 IPv4 prefixes.
func (s Sidecar) Flags() []string {
	flags := []string{
		"-p", "15001", "-z", "15006", "-u", "1337", "-m", "REDIRECT", "-i", "*", "-x",
		strings.Join(s.prefixes(), ","),
		"-b", "*", "-d", "15090,15021,15020",
	}
	if !s.IPv4Only {
		flags = append(flags, "--dual-stack")
	}
	if !s.WithoutDNS {
		flags = append(flags, "--redirect-dns", "--capture-all-dns")
	}
	return flags
}

// prefixes returns the excluded prefixes.
func (s Sidecar) prefixes() []string {
	list := make([]string, 0, s.IPv4Prefixes+s.IPv6Prefixes)
	// The byte or group that ends at the prefix length is even, so that no two prefixes are
	// adjacent. For each first byte, 10 values of the second byte and 128 even values of the third
	// give 1280 IPv4 prefixes.
	for i := range s.IPv4Prefixes {
		list = append(list, fmt.Sprintf("%d.%d.%d.0/24", 1+i/1280, i/128%10, i%128*2))
	}
	for i := range s.IPv6Prefixes {
		list = append(list, fmt.Sprintf("fd00:%x::/32", i*2))
	}
	if s.ReplaceLastPrefix {
		list[s.IPv4Prefixes-1] = "192.0.2.0/24"
	}
	return list
}

// Redirect returns the redirection that the flags describe.
func (s Sidecar) Redirect() (rules.Redirect, error) {
	return istio.Configuration{Args: s.Flags(), Pod: istio.DualPod}.Redirect()
}

// Compile returns the ruleset of the sidecar.
func (s Sidecar) Compile() (rules.Ruleset, error) {
	r, err := s.Redirect()
	if err != nil {
		return rules.Ruleset{}, err
	}
	return rules.Compile(r)
}
