package istio

import (
	"slices"
	"strings"
)

// A Configuration is what istio-iptables is started with, and the pod that it is started in.
type Configuration struct {
	// Name is unique among the configurations of a matrix, Group says what several of them have in
	// common: the parameter that is varied.
	Name, Group string
	// Args are the arguments, Env the environment as far as istio-iptables looks at it, each
	// "NAME=value".
	Args, Env []string
	Pod       Pod
	// ResolvConf is the content of /etc/resolv.conf.
	ResolvConf string
	// Idle reports that it is to leave no rules behind.
	Idle bool
	// Refused is not nil if one of the two programs refuses to do this.
	Refused *Refusal
}

// A Refusal says who refuses a configuration, and why they may differ about it.
type Refusal struct {
	ByIstio, ByUs bool
	Reason        string
}

// Pod says which addresses a pod has on its eth0.
type Pod uint8

// The pods.
const (
	IPv4Pod Pod = iota
	IPv6Pod
	DualPod // of both families, the IPv4 address first
)

// String is "v4", "v6" or "dual".
func (p Pod) String() string { return [...]string{"v4", "v6", "dual"}[p] }

// String writes the configuration as a shell would start it, with a note about the pod.
func (c Configuration) String() string {
	var b strings.Builder
	for _, e := range c.Env {
		name, value, _ := strings.Cut(e, "=")
		b.WriteString(name + "=" + quote(value) + " ")
	}
	b.WriteString("istio-iptables")
	for _, a := range c.Args {
		b.WriteString(" " + quote(a))
	}
	b.WriteString("  # pod with " + c.Pod.String())
	if servers := c.nameservers(); len(servers) > 0 {
		b.WriteString(", nameserver " + strings.Join(servers, " "))
	}
	return b.String()
}

// quote puts a word into quotes if a shell would take it for something else.
func quote(word string) string {
	if word == "" || strings.ContainsAny(word, " *'\"$&;<>|()#") {
		return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
	}
	return word
}

// nameservers are the servers of resolv.conf, as written.
func (c Configuration) nameservers() []string {
	var servers []string
	for line := range strings.Lines(c.ResolvConf) {
		if words := strings.Fields(line); len(words) > 1 && words[0] == "nameserver" {
			servers = append(servers, words[1])
		}
	}
	return servers
}

// variable is the value of an environment variable.
func (c Configuration) variable(name string) (string, bool) {
	i := slices.IndexFunc(c.Env, func(e string) bool { return strings.HasPrefix(e, name+"=") })
	if i < 0 {
		return "", false
	}
	return c.Env[i][len(name)+1:], true
}
