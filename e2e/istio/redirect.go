package istio

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"net/netip"
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
	set func(r *rules.Redirect, text string) error
}

// setter returns a function that parses a text and stores the value in a field of a Redirect.
func setter[T any](
	parse func(string) (T, error), field func(*rules.Redirect) *T,
) func(*rules.Redirect, string) error {
	return func(r *rules.Redirect, text string) error {
		value, err := parse(text)
		*field(r) = value
		return err
	}
}

// inputs returns the parameters in istio.io/istio tools/istio-iptables/pkg/cmd/root.go. This list
// is independent of the list in Sluice's command, so that a test can compare them.
func inputs() []input {
	type redirect = *rules.Redirect
	ports := func(field func(redirect) *[]rules.PortRange) func(redirect, string) error {
		return setter(rules.ParsePorts, field)
	}
	interfaces := func(field func(redirect) *[]rules.InterfaceName) func(redirect, string) error {
		return setter(rules.ParseInterfaces, field)
	}
	boolean := func(field func(redirect) *bool) func(redirect, string) error {
		return setter(rules.ParseBool, field)
	}
	return []input{
		{
			flag: "envoy-port", short: "p",
			set: setter(rules.ParsePort, func(r redirect) *uint16 { return &r.ProxyPort }),
		},
		{
			flag: "inbound-capture-port", short: "z",
			set: setter(rules.ParsePort, func(r redirect) *uint16 { return &r.InboundCapturePort }),
		},
		{
			flag: "inbound-tunnel-port", short: "e",
			set: setter(rules.ParsePort, func(r redirect) *uint16 { return &r.TunnelPort }),
		},
		{
			flag: "proxy-uid", short: "u",
			set: setter(parseUsers, func(r redirect) *[]rules.IDRange { return &r.ProxyUIDs }),
		},
		{
			flag: "proxy-gid", short: "g",
			set: setter(parseGroups, func(r redirect) *[]rules.IDRange { return &r.ProxyGIDs }),
		},
		{
			flag: "istio-inbound-interception-mode", short: "m",
			set: setter(rules.ParseMode, func(r redirect) *rules.Mode { return &r.Mode }),
		},
		{
			flag: "istio-inbound-tproxy-mark", short: "t",
			set: setter(rules.ParseMark, func(r redirect) *uint32 {
				return &r.TProxyMark
			}),
		},
		{
			flag: "istio-inbound-tproxy-route-table", short: "r",
			set: setter(rules.ParseMark, func(r redirect) *uint32 { return &r.TProxyRouteTable }),
		},
		{
			flag: "istio-inbound-ports", short: "b",
			set: setter(rules.ParsePortSelection, func(r redirect) *rules.PortSelection {
				return &r.InboundPorts
			}),
		},
		{
			flag: "istio-local-exclude-ports", short: "d",
			set: ports(func(r redirect) *[]rules.PortRange { return &r.InboundExcludePorts }),
		},
		{
			flag: "istio-service-cidr", short: "i",
			set: setter(rules.ParsePrefixSelection, func(r redirect) *rules.PrefixSelection {
				return &r.OutboundCIDRs
			}),
		},
		{
			flag: "istio-service-exclude-cidr", short: "x",
			set: setter(rules.ParsePrefixes, func(r redirect) *[]netip.Prefix {
				return &r.OutboundExcludeCIDRs
			}),
		},
		{
			flag: "istio-outbound-ports", short: "q",
			set: ports(func(r redirect) *[]rules.PortRange { return &r.OutboundPorts }),
		},
		{
			flag: "istio-local-outbound-ports-exclude", short: "o",
			set: ports(func(r redirect) *[]rules.PortRange { return &r.OutboundExcludePorts }),
		},
		{
			flag: "istio-exclude-interfaces", short: "c",
			set: interfaces(func(r redirect) *[]rules.InterfaceName {
				return &r.ExcludeInterfaces
			}),
		},
		{
			flag: "kube-virt-interfaces", short: "k",
			set: interfaces(func(r redirect) *[]rules.InterfaceName {
				return &r.RerouteInterfaces
			}),
		},
		{
			flag: "redirect-dns", variables: []string{"ISTIO_META_DNS_CAPTURE"}, isBool: true,
			set: boolean(func(r redirect) *bool { return &r.DNS.Capture }),
		},
		{
			flag: "capture-all-dns", isBool: true,
			set: boolean(func(r redirect) *bool { return &r.DNS.All }),
		},
		{
			flag: "drop-invalid", variables: []string{"INVALID_DROP"}, isBool: true,
			set: boolean(func(r redirect) *bool { return &r.DropInvalid }),
		},
		{
			flag: "dual-stack", variables: []string{"ISTIO_DUAL_STACK"}, isBool: true,
			set: boolean(func(r redirect) *bool { return &r.IPv6 }),
		},
		{
			variables: []string{"ISTIO_OUTBOUND_OWNER_GROUPS"},
			set: setter(parseGroupSelection, func(r redirect) *rules.GroupSelection {
				return &r.OwnerGroups
			}),
		},
		{
			variables: []string{"ISTIO_OUTBOUND_OWNER_GROUPS_EXCLUDE"},
			set: setter(parseGroups, func(r redirect) *[]rules.IDRange {
				return &r.OwnerGroupsExclude
			}),
		},
		{
			variables: []string{"ISTIO_OUTBOUND_IPV4_LOOPBACK_CIDR"},
			set: setter(rules.ParseLoopbackCIDR, func(r redirect) *netip.Prefix {
				return &r.LoopbackCIDR
			}),
		},
	}
}

// Redirect returns the parameters of the configuration, with all deviations enabled. If values
// cannot be parsed, the error lists all of them.
func (c Configuration) Redirect() (rules.Redirect, error) {
	r := rules.DefaultRedirect()
	r.ProxyUIDs, r.ProxyGIDs = nil, nil
	parameters := inputs()
	flags, err := parseFlags(parameters, c.Args)
	if err != nil {
		return r, err
	}
	var errs []error
	for _, in := range parameters {
		if text, isSet := c.value(in, flags); isSet {
			errs = append(errs, in.set(&r, text))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return r, err
	}
	c.complete(&r)
	return r, r.Validate()
}

// parseFlags parses the arguments that are inputs, and ignores all others.
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

// value returns the text to which an input is set, and false if it is not set. Like Istio, it
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
	// Until here, r.IPv6 is the value of the flag dual-stack.
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

// parseUsers parses a list of users, which may be names of this machine's users.
func parseUsers(text string) ([]rules.IDRange, error) { return rules.ParseIDs(text, lookupUser) }

// parseGroups parses a list of groups, which may be names of this machine's groups.
func parseGroups(text string) ([]rules.IDRange, error) { return rules.ParseIDs(text, lookupGroup) }

// parseGroupSelection parses a list of groups, or a text that selects all.
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
