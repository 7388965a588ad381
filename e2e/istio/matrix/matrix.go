// Package matrix generates the configurations in which Sluice is compared with istio-iptables.
// [Single] varies one parameter at a time, with the values at which its effect changes. [Random]
// combines parameters.
package matrix

import (
	"slices"
	"strings"

	"github.com/sluice-mesh/sluice/e2e/istio"
)

// A pod describes the addresses of a pod and the corresponding settings.
type pod struct {
	name      string
	addresses istio.Pod
	settings  []setting
}

// The pods and modes with which values are combined.
var (
	v4        = pod{"v4", istio.IPv4Pod, nil}
	v6        = pod{"v6", istio.IPv6Pod, nil}
	dual      = pod{"dual", istio.DualPod, []setting{"dual-stack"}}
	unflagged = pod{"unflagged", istio.DualPod, nil} // both families, without --dual-stack

	everyPod  = []pod{v4, v6, dual, unflagged}
	bothModes = []string{redirect, tproxy}
)

const (
	redirect = "REDIRECT"
	tproxy   = "TPROXY"
)

// base contains the settings that the injector passes to istio-init, and the resolv.conf of a pod.
var base = []setting{
	"envoy-port=15001", "inbound-capture-port=15006", "proxy-uid=1337",
	"istio-inbound-interception-mode=REDIRECT",
	"istio-service-cidr=*", "istio-service-exclude-cidr=", "istio-inbound-ports=*",
	"istio-local-exclude-ports=15090,15021,15020",
	resolvConf + "=search default.svc.cluster.local\nnameserver 10.96.0.10\noptions ndots:5\n",
}

// Single returns configurations with one varied parameter each.
func Single() []istio.Configuration {
	var configurations []istio.Configuration
	for _, p := range parameters() {
		for _, v := range p.Values {
			for _, mode := range orDefault(p.Modes, redirect) {
				for _, pod := range orDefault(p.Pods, v4) {
					c := configure(pod, modeSetting(mode), v.settings)
					c.Group, c.NoRules, c.Refused = p.Group, p.NoRules, p.Refused
					c.Name = p.Group + "/" + withoutSeparators(v.name) + "/" + pod.name
					if len(p.Modes) > 1 {
						c.Name += "/" + mode
					}
					configurations = append(configurations, c)
				}
			}
		}
	}
	return configurations
}

// modeSetting returns the setting of the interception mode.
func modeSetting(mode string) []setting {
	return []setting{setting("istio-inbound-interception-mode=" + mode)}
}

// orDefault returns the values, or only the default value if there are none.
func orDefault[T any](values []T, defaultValue T) []T {
	if len(values) == 0 {
		return []T{defaultValue}
	}
	return values
}

// configure returns the base configuration with the settings. A later setting replaces an earlier
// one with the same name.
func configure(p pod, settings ...[]setting) istio.Configuration {
	chosen := slices.Clone(base)
	for _, s := range append(slices.Concat(settings...), p.settings...) {
		hasSameName := func(other setting) bool { return other.name() == s.name() }
		i := slices.IndexFunc(chosen, hasSameName)
		switch isRemoval := s[0] == '~'; {
		case isRemoval:
			chosen = slices.DeleteFunc(chosen, hasSameName)
		case i >= 0:
			chosen[i] = s
		default:
			chosen = append(chosen, s)
		}
	}
	c := istio.Configuration{Pod: p.addresses}
	for _, s := range chosen {
		switch name, text, _ := strings.Cut(string(s), "="); name {
		case resolvConf:
			c.ResolvConf = text
		case strings.ToUpper(name):
			c.Env = append(c.Env, string(s))
		default:
			c.Args = append(c.Args, "--"+string(s))
		}
	}
	return c
}

// withoutSeparators replaces the characters of a name that have a meaning in names of Go tests.
func withoutSeparators(name string) string {
	return strings.NewReplacer("/", "_", " ", "_").Replace(name)
}

// many returns n elements, separated by commas.
func many(n int, element func(i int) string) string {
	texts := make([]string, n)
	for i := range texts {
		texts[i] = element(i)
	}
	return strings.Join(texts, ",")
}
