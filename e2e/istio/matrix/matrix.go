// Package matrix generates the configurations in which Sluice is compared with istio-iptables.
// [Single] varies one parameter at a time, with the values at which its effect changes. [Random]
// combines parameters.
package matrix

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/sluice-mesh/sluice/e2e/istio"
)

// A setting sets a flag ("proxy-uid=1338"), sets an environment variable ("PROXY_UID=1338"), or
// removes a flag ("~proxy-uid"). The names of variables are in upper case.
type setting string

// name returns the name of the flag or variable.
func (s setting) name() string {
	name, _, _ := strings.Cut(strings.TrimPrefix(string(s), "~"), "=")
	return name
}

// A parameter is a row of the matrix: flags or environment variables, and their values.
type parameter struct {
	group string // name of the row
	// values contains the values, which are tested separately.
	values []value
	// pods and modes are combined with each value. The default is an IPv4 pod and REDIRECT.
	pods  []pod
	modes []string
	// singleOnly excludes the values from random combinations: only Single uses them. idle is true
	// if the program creates no rules with the values.
	singleOnly, idle bool
}

// A value consists of one or more settings.
type value struct {
	name       string // unique in the row
	settings   []setting
	resolvConf string // replaces usualResolvConf if not empty
	refused    *istio.Refusal
}

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

	// usualResolvConf is the resolv.conf of a pod.
	usualResolvConf = "search default.svc.cluster.local\nnameserver 10.96.0.10\noptions ndots:5\n"
)

// base contains the settings that the injector passes to istio-init.
var base = []setting{
	"envoy-port=15001", "inbound-capture-port=15006", "proxy-uid=1337",
	"istio-inbound-interception-mode=REDIRECT",
	"istio-service-cidr=*", "istio-service-exclude-cidr=", "istio-inbound-ports=*",
	"istio-local-exclude-ports=15090,15021,15020",
}

// Single returns configurations with one varied parameter each.
func Single() []istio.Configuration {
	var configurations []istio.Configuration
	for _, p := range parameters() {
		for _, v := range p.values {
			for _, mode := range orDefault(p.modes, redirect) {
				for _, pod := range orDefault(p.pods, v4) {
					c := configure(pod, v.resolvConf, modeSetting(mode), v.settings)
					c.Group, c.Idle, c.Refused = p.group, p.idle, v.refused
					c.Name = p.group + "/" + withoutSeparators(v.name) + "/" + pod.name
					if len(p.modes) > 1 {
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
func configure(p pod, resolvConf string, settings ...[]setting) istio.Configuration {
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
	c := istio.Configuration{Pod: p.addresses, ResolvConf: resolvConf}
	if resolvConf == "" {
		c.ResolvConf = usualResolvConf
	}
	for _, s := range chosen {
		if name := s.name(); strings.ToUpper(name) == name {
			c.Env = append(c.Env, string(s))
		} else {
			c.Args = append(c.Args, "--"+string(s))
		}
	}
	return c
}

// withoutSeparators replaces the characters of a name that have a meaning in names of Go tests.
func withoutSeparators(name string) string {
	return strings.NewReplacer("/", "_", " ", "_").Replace(name)
}

// each returns a value for each of the texts. The value sets the flag or variable to the text.
func each(name string, texts ...string) []value {
	values := make([]value, len(texts))
	for i, t := range texts {
		values[i] = value{name: t, settings: []setting{setting(name + "=" + t)}}
		if t == "" {
			values[i].name = "none"
		}
	}
	return values
}

// together returns one value that consists of the settings.
func together(name string, settings ...setting) value {
	return value{name: name, settings: settings}
}

// many returns n elements, separated by commas.
func many(n int, element func(i int) string) string {
	texts := make([]string, n)
	for i := range texts {
		texts[i] = element(i)
	}
	return strings.Join(texts, ",")
}

// prefix4 returns one of 65,536 IPv4 prefixes.
func prefix4(i int) string { return fmt.Sprintf("10.%d.%d.0/24", i/256, i%256) }

// prefix6 returns one of 65,536 IPv6 prefixes.
func prefix6(i int) string { return fmt.Sprintf("fd00:%x::/32", i) }

// groupID returns a group ID. The IDs are not adjacent, so that they do not form ranges.
func groupID(i int) string { return strconv.Itoa(2000 + 2*i) }
