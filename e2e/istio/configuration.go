package istio

import (
	"slices"
	"strings"
)

// A Configuration contains the arguments and environment of istio-iptables, and the pod in which it
// runs.
type Configuration struct {
	// Name identifies the configuration. Group is the group of its row in the matrix, or "random".
	Name, Group string
	// Args are arguments. Env are environment variables that istio-iptables reads, as "NAME=value".
	Args, Env []string
	Pod       Pod
	// ResolvConf is the content of /etc/resolv.conf.
	ResolvConf string
	// NoRules is true if the programs must create no rules.
	NoRules bool
	// Refused is set if istio-iptables or Sluice rejects the configuration.
	Refused *Refusal
}

// A Refusal states which programs reject a configuration, and why.
type Refusal struct {
	ByIstio, BySluice bool
	Reason            string
}

// Pod specifies the addresses of a pod's eth0.
type Pod uint8

// The pods.
const (
	IPv4Pod Pod = iota
	IPv6Pod
	DualPod // both families
)

// String returns "v4", "v6" or "dual".
func (p Pod) String() string { return [...]string{"v4", "v6", "dual"}[p] }

// String returns the configuration as a shell command, with a comment that describes the pod.
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

// quote quotes a word if a shell would interpret it.
func quote(word string) string {
	if word == "" || strings.ContainsAny(word, " \t\n*?[]{}~\\`'\"$&;<>|()#") {
		return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
	}
	return word
}

// nameservers returns the nameservers in ResolvConf.
func (c Configuration) nameservers() []string {
	var servers []string
	for line := range strings.Lines(c.ResolvConf) {
		if words := strings.Fields(line); len(words) > 1 && words[0] == "nameserver" {
			servers = append(servers, words[1])
		}
	}
	return servers
}

// variable returns the value of an environment variable, and reports whether it is set.
func (c Configuration) variable(name string) (string, bool) {
	i := slices.IndexFunc(c.Env, func(e string) bool { return strings.HasPrefix(e, name+"=") })
	if i < 0 {
		return "", false
	}
	return c.Env[i][len(name)+1:], true
}
