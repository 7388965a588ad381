package matrix

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"

	"github.com/sluice-mesh/sluice/e2e/istio"
)

// Random returns n random combinations of parameters. Equal seeds yield equal combinations. With a
// larger n, the first combinations are the same.
func Random(seed uint64, n int) []istio.Configuration {
	configurations := make([]istio.Configuration, n)
	for i := range configurations {
		c := combination(rand.New(rand.NewPCG(seed, uint64(i))))
		c.Group, c.Name = "random", fmt.Sprintf("random/%d-%d", seed, i)
		configurations[i] = c
	}
	return configurations
}

// combination returns a configuration with a random pod and mode. On average, one in six parameters
// has a value from the matrix, and one in four lists has random elements.
func combination(r *rand.Rand) istio.Configuration {
	var settings []setting
	for _, p := range parameters() {
		if p.SingleOnly || r.IntN(6) > 0 {
			continue
		}
		settings = append(settings, p.Values[r.IntN(len(p.Values))].settings...)
	}
	for _, list := range []struct {
		name    string
		element func(*rand.Rand) string
	}{
		{"istio-inbound-ports", port},
		{"istio-local-exclude-ports", port},
		{"istio-outbound-ports", port},
		{"istio-local-outbound-ports-exclude", port},
		{"istio-service-cidr", prefix},
		{"istio-service-exclude-cidr", prefix},
	} {
		if r.IntN(4) == 0 {
			settings = append(settings, setting(list.name+"="+many(1+r.IntN(5), func(int) string {
				return list.element(r)
			})))
		}
	}
	mode := bothModes[r.IntN(len(bothModes))]
	return configure(everyPod[r.IntN(len(everyPod))], settings, modeSetting(mode))
}

// port returns a port or a port range, often a port with a special meaning.
func port(r *rand.Rand) string {
	known := []string{
		"53", "80", "443", "15001", "15006", "15008", "15020", "15053", "0", "1", "65535",
	}
	switch r.IntN(3) {
	case 0:
		return known[r.IntN(len(known))]
	case 1:
		return fmt.Sprint(r.IntN(1 << 16))
	}
	first := r.IntN(1 << 16)
	return fmt.Sprintf("%d:%d", first, first+r.IntN(1<<16-first))
}

// prefix returns a prefix of either family, usually with host bits set.
func prefix(r *rand.Rand) string {
	known := []string{
		"0.0.0.0/0", "::/0", "127.0.0.6/32", "::6/128", "10.244.1.5/32", "fd00:10:244:1::5/128",
		"10.96.0.10/32", "127.0.0.0/8",
	}
	if r.IntN(4) == 0 {
		return known[r.IntN(len(known))]
	}
	text := fmt.Sprintf("%d.%d.%d.%d", 1+r.IntN(223), r.IntN(256), r.IntN(256), r.IntN(256))
	if r.IntN(2) == 0 {
		text = strings.Join([]string{
			"fd00", fmt.Sprintf("%x", r.IntN(1<<16)), "", fmt.Sprintf("%x", r.IntN(1<<16)),
		}, ":")
	}
	a := netip.MustParseAddr(text)
	return fmt.Sprintf("%s/%d", a, r.IntN(a.BitLen()+1))
}
