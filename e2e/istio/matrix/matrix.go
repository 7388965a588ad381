// Package matrix generates the configurations for comparing Sluice with istio-iptables. In some, a
// single parameter is varied, with the values at which its effect changes. Others are random
// combinations.
package matrix

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/sluice-mesh/sluice/e2e/istio"
)

// A setting is a flag ("proxy-uid=1338") or, in upper case, an environment variable. "~proxy-uid"
// removes a flag.
type setting string

// A parameter is a row of the matrix: the parameter that is varied, and its values.
type parameter struct {
	group string
	// values contains the values, which are tested separately.
	values []value
	// pods and modes are tested with each value. If they are empty, an IPv4 pod and REDIRECT are
	// used.
	pods  []pod
	modes []string
	// alone is true if the values are not used in combinations, because they have no effect or are
	// rejected. idle is true if no rules are created.
	alone, idle bool
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
	var all []istio.Configuration
	for _, p := range parameters() {
		for _, v := range p.values {
			for _, mode := range orOne(p.modes, redirect) {
				for _, pod := range orOne(p.pods, v4) {
					c := configure(pod, v.resolvConf, modeSetting(mode), v.settings)
					c.Group, c.Idle, c.Refused = p.group, p.idle, v.refused
					c.Name = strings.Join([]string{p.group, plain(v.name), pod.name}, "/")
					if len(p.modes) > 1 {
						c.Name += "/" + mode
					}
					all = append(all, c)
				}
			}
		}
	}
	return all
}

func modeSetting(mode string) []setting {
	return []setting{setting("istio-inbound-interception-mode=" + mode)}
}

// orOne returns the list, or a list of the value if it is empty.
func orOne[T any](list []T, usual T) []T {
	if len(list) == 0 {
		return []T{usual}
	}
	return list
}

// configure returns a configuration; later settings replace earlier ones of the same name.
func configure(p pod, resolvConf string, settings ...[]setting) istio.Configuration {
	chosen := slices.Clone(base)
	for _, s := range append(slices.Concat(settings...), p.settings...) {
		name, _, _ := strings.Cut(strings.TrimPrefix(string(s), "~"), "=")
		same := func(other setting) bool {
			n, _, _ := strings.Cut(string(other), "=")
			return n == name
		}
		i := slices.IndexFunc(chosen, same)
		switch removes := s[0] == '~'; {
		case removes:
			chosen = slices.DeleteFunc(chosen, same)
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
		if name, _, _ := strings.Cut(string(s), "="); strings.ToUpper(name) == name {
			c.Env = append(c.Env, string(s))
		} else {
			c.Args = append(c.Args, "--"+string(s))
		}
	}
	return c
}

// plain replaces the characters of a name that go test interprets.
func plain(name string) string { return strings.NewReplacer("/", "_", " ", "_").Replace(name) }

// each returns a value for each text of a parameter.
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

// together returns a value of several settings.
func together(name string, settings ...setting) value {
	return value{name: name, settings: settings}
}

// many returns a comma-separated list of n elements.
func many(n int, element func(i int) string) string {
	texts := make([]string, n)
	for i := range texts {
		texts[i] = element(i)
	}
	return strings.Join(texts, ",")
}

func prefix4(i int) string { return fmt.Sprintf("10.%d.%d.0/24", i/256, i%256) }
func prefix6(i int) string { return fmt.Sprintf("fd00:%x::/32", i) }

// group returns a group id. The ids are not adjacent, so that they do not form ranges.
func group(i int) string { return strconv.Itoa(2000 + 2*i) }
