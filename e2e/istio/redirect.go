package istio

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os/user"
	"strconv"
	"strings"

	"github.com/spf13/pflag"

	"github.com/sluice-mesh/sluice/rules"
)

// An input is a parameter of istio-iptables that affects its rules. A flag or environment variables
// set it. The flag takes precedence over variables, and a later variable over an earlier one.
type input struct {
	flag, short string
	variables   []string
	isBool      bool
	// set parses the text and stores the value.
	set func(text string) error
}

// into returns a function that parses a text and stores the value in a field.
func into[T any](field *T, parse func(string) (T, error)) func(string) error {
	return func(text string) (err error) {
		*field, err = parse(text)
		return err
	}
}

// inputs returns the parameters that istio.io/istio/tools/istio-iptables/pkg/cmd/root.go defines,
// with functions that set fields of r. This list is independent of the list in Sluice's command, so
// that a test can compare them.
func inputs(r *rules.Redirect) []input {
	stringFlag := func(flag, short string, set func(string) error) input {
		return input{flag: flag, short: short, set: set}
	}
	boolFlag := func(flag string, field *bool, variables ...string) input {
		return input{
			flag: flag, variables: variables, isBool: true, set: into(field, rules.ParseBool),
		}
	}
	variable := func(name string, set func(string) error) input {
		return input{variables: []string{name}, set: set}
	}
	return []input{
		stringFlag("envoy-port", "p", into(&r.ProxyPort, rules.ParsePort)),
		stringFlag("inbound-capture-port", "z", into(&r.InboundCapturePort, rules.ParsePort)),
		stringFlag("inbound-tunnel-port", "e", into(&r.TunnelPort, rules.ParsePort)),
		stringFlag("proxy-uid", "u", into(&r.ProxyUIDs, parseUsers)),
		stringFlag("proxy-gid", "g", into(&r.ProxyGIDs, parseGroups)),
		stringFlag("istio-inbound-interception-mode", "m", into(&r.Mode, rules.ParseMode)),
		stringFlag("istio-inbound-tproxy-mark", "t", into(&r.TProxyMark, rules.ParseMark)),
		stringFlag("istio-inbound-tproxy-route-table", "r",
			into(&r.TProxyRouteTable, rules.ParseMark)),
		stringFlag("istio-inbound-ports", "b", into(&r.InboundPorts, rules.ParsePortSelection)),
		stringFlag("istio-local-exclude-ports", "d", into(&r.InboundExcludePorts, rules.ParsePorts)),
		stringFlag("istio-service-cidr", "i", into(&r.OutboundCIDRs, rules.ParsePrefixSelection)),
		stringFlag("istio-service-exclude-cidr", "x",
			into(&r.OutboundExcludeCIDRs, rules.ParsePrefixes)),
		stringFlag("istio-outbound-ports", "q", into(&r.OutboundPorts, rules.ParsePorts)),
		stringFlag("istio-local-outbound-ports-exclude", "o",
			into(&r.OutboundExcludePorts, rules.ParsePorts)),
		stringFlag("istio-exclude-interfaces", "c",
			into(&r.ExcludeInterfaces, rules.ParseInterfaces)),
		stringFlag("kube-virt-interfaces", "k", into(&r.RerouteInterfaces, rules.ParseInterfaces)),
		boolFlag("redirect-dns", &r.DNS.Capture, "ISTIO_META_DNS_CAPTURE"),
		boolFlag("capture-all-dns", &r.DNS.All),
		boolFlag("drop-invalid", &r.DropInvalid, "INVALID_DROP"),
		boolFlag("dual-stack", &r.IPv6, "ISTIO_DUAL_STACK"),
		variable("ISTIO_OUTBOUND_OWNER_GROUPS", into(&r.OwnerGroups, parseGroupSelection)),
		variable("ISTIO_OUTBOUND_OWNER_GROUPS_EXCLUDE", into(&r.OwnerGroupsExclude, parseGroups)),
		variable("ISTIO_OUTBOUND_IPV4_LOOPBACK_CIDR",
			into(&r.LoopbackCIDR, rules.ParseLoopbackCIDR)),
	}
}

// Redirect returns the parameters of the configuration, with all deviations enabled. An error about
// c.Args describes only the first invalid argument. Otherwise, the error lists all values that
// cannot be parsed or, if there are none, all invalid parameters.
func (c Configuration) Redirect() (rules.Redirect, error) {
	r := rules.DefaultRedirect()
	r.ProxyUIDs, r.ProxyGIDs = nil, nil
	parameters := inputs(&r)
	flags, err := parseFlags(parameters, c.Args)
	if err != nil {
		return r, err
	}
	var errs []error
	for _, p := range parameters {
		if text, isSet := c.value(p, flags); isSet {
			errs = append(errs, p.set(text))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return r, err
	}
	c.complete(&r)
	return r, r.Validate()
}

// parseFlags parses the arguments, and ignores flags that do not belong to the inputs.
func parseFlags(inputs []input, args []string) (*pflag.FlagSet, error) {
	flags := pflag.NewFlagSet("istio-iptables", pflag.ContinueOnError)
	flags.ParseErrorsAllowlist.UnknownFlags = true
	flags.SetOutput(io.Discard)
	for _, in := range inputs {
		switch {
		case in.flag == "":
		case in.isBool:
			flags.BoolP(in.flag, in.short, false, "")
		default:
			flags.StringP(in.flag, in.short, "", "")
		}
	}
	return flags, flags.Parse(args)
}

// value returns the value given for an input, and reports whether there is one. Like Istio, it
// ignores an invalid variable of a boolean input.
func (c Configuration) value(in input, flags *pflag.FlagSet) (string, bool) {
	if in.flag != "" && flags.Changed(in.flag) {
		return flags.Lookup(in.flag).Value.String(), true
	}
	variables := in.variables
	// Istio binds every flag except envoy-port to an environment variable.
	if in.flag != "" && in.flag != "envoy-port" {
		variables = append([]string{strings.ToUpper(strings.ReplaceAll(in.flag, "-", "_"))},
			variables...)
	}
	var last string
	var isSet bool
	for _, v := range variables {
		text, exists := c.variable(v)
		_, boolErr := strconv.ParseBool(text)
		isIgnored := in.isBool && boolErr != nil
		if exists && !isIgnored {
			last, isSet = text, true
		}
	}
	return last, isSet
}

// complete sets the default users and groups of the proxy, and the fields that depend on the pod.
func (c Configuration) complete(r *rules.Redirect) {
	if len(r.ProxyUIDs) == 0 {
		r.ProxyUIDs = rules.Singles[uint32](rules.DefaultProxyID)
		name, _ := c.variable("ENVOY_USER")
		if id, err := lookupUser(cmp.Or(name, "istio-proxy")); err == nil {
			r.ProxyUIDs = rules.Singles(id)
		}
	}
	if len(r.ProxyGIDs) == 0 {
		r.ProxyGIDs = r.ProxyUIDs
	}
	// Up to this point, r.IPv6 holds the value of the input dual-stack.
	r.IPv6 = c.Pod == IPv6Pod || c.Pod == DualPod && r.IPv6
	if !r.DNS.Capture || r.DNS.All {
		return
	}
	for _, text := range c.nameservers() {
		if server, err := rules.ParseServer(text); err == nil {
			r.DNS.Servers = append(r.DNS.Servers, server)
		}
	}
	r.DNS.Capture = len(r.DNS.Servers) > 0
}

// parseUsers parses a list of user IDs and names of this machine's users.
func parseUsers(text string) ([]rules.IDRange, error) { return rules.ParseIDs(text, lookupUser) }

// parseGroups parses a list of group IDs and names of this machine's groups.
func parseGroups(text string) ([]rules.IDRange, error) { return rules.ParseIDs(text, lookupGroup) }

// parseGroupSelection parses a list of groups, or "*" for all groups.
func parseGroupSelection(text string) (rules.GroupSelection, error) {
	return rules.ParseGroupSelection(text, lookupGroup)
}

// lookupUser returns the ID of a user of this machine.
func lookupUser(name string) (uint32, error) {
	u, err := user.Lookup(name)
	if err != nil {
		return 0, err
	}
	return parseID(u.Uid)
}

// lookupGroup returns the ID of a group of this machine.
func lookupGroup(name string) (uint32, error) {
	g, err := user.LookupGroup(name)
	if err != nil {
		return 0, err
	}
	return parseID(g.Gid)
}

// parseID parses a numeric user or group ID.
func parseID(text string) (uint32, error) {
	n, err := strconv.ParseUint(text, 10, 32)
	if err != nil {
		return 0, fmt.Errorf("id %q: %w", text, err)
	}
	return uint32(n), nil
}
