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
	set         func(r *rules.Redirect, text string) error
}

// set returns a function that parses a text and stores the value in a field of a Redirect.
func set[T any](
	parse func(string) (T, error), field func(*rules.Redirect) *T,
) func(*rules.Redirect, string) error {
	return func(r *rules.Redirect, text string) error {
		v, err := parse(text)
		*field(r) = v
		return err
	}
}

// inputs returns the parameters in istio.io/istio tools/istio-iptables/pkg/cmd/root.go. This list
// is independent of the list in Sluice's command, so that a test can compare them.
func inputs() []input {
	type r = *rules.Redirect
	ports := func(field func(r) *[]rules.PortRange) func(r, string) error {
		return set(rules.ParsePorts, field)
	}
	names := func(field func(r) *[]rules.InterfaceName) func(r, string) error {
		return set(rules.ParseInterfaces, field)
	}
	isBool := func(field func(r) *bool) func(r, string) error { return set(rules.ParseBool, field) }
	return []input{
		{flag: "envoy-port", short: "p", set: set(rules.ParsePort, func(r r) *uint16 {
			return &r.ProxyPort
		})},
		{flag: "inbound-capture-port", short: "z", set: set(rules.ParsePort, func(r r) *uint16 {
			return &r.InboundCapturePort
		})},
		{flag: "inbound-tunnel-port", short: "e", set: set(rules.ParsePort, func(r r) *uint16 {
			return &r.TunnelPort
		})},
		{flag: "proxy-uid", short: "u", set: set(parseUsers, func(r r) *[]rules.IDRange {
			return &r.ProxyUIDs
		})},
		{flag: "proxy-gid", short: "g", set: set(parseGroups, func(r r) *[]rules.IDRange {
			return &r.ProxyGIDs
		})},
		{
			flag: "istio-inbound-interception-mode", short: "m",
			set: set(rules.ParseMode, func(r r) *rules.Mode { return &r.Mode }),
		},
		{
			flag: "istio-inbound-tproxy-mark", short: "t",
			set: set(rules.ParseMark, func(r r) *uint32 {
				return &r.TProxyMark
			}),
		},
		{
			flag: "istio-inbound-tproxy-route-table", short: "r",
			set: set(rules.ParseMark, func(r r) *uint32 { return &r.TProxyRouteTable }),
		},
		{
			flag: "istio-inbound-ports", short: "b",
			set: set(rules.ParsePortSelection, func(r r) *rules.PortSelection {
				return &r.InboundPorts
			}),
		},
		{flag: "istio-local-exclude-ports", short: "d", set: ports(func(r r) *[]rules.PortRange {
			return &r.InboundExcludePorts
		})},
		{
			flag: "istio-service-cidr", short: "i",
			set: set(rules.ParsePrefixSelection, func(r r) *rules.PrefixSelection {
				return &r.OutboundCIDRs
			}),
		},
		{
			flag: "istio-service-exclude-cidr", short: "x",
			set: set(rules.ParsePrefixes, func(r r) *[]netip.Prefix {
				return &r.OutboundExcludeCIDRs
			}),
		},
		{flag: "istio-outbound-ports", short: "q", set: ports(func(r r) *[]rules.PortRange {
			return &r.OutboundPorts
		})},
		{
			flag: "istio-local-outbound-ports-exclude", short: "o",
			set: ports(func(r r) *[]rules.PortRange { return &r.OutboundExcludePorts }),
		},
		{flag: "istio-exclude-interfaces", short: "c", set: names(func(r r) *[]rules.InterfaceName {
			return &r.ExcludeInterfaces
		})},
		{flag: "kube-virt-interfaces", short: "k", set: names(func(r r) *[]rules.InterfaceName {
			return &r.RerouteInterfaces
		})},
		{
			flag: "redirect-dns", variables: []string{"ISTIO_META_DNS_CAPTURE"}, isBool: true,
			set: isBool(func(r r) *bool { return &r.DNS.Capture }),
		},
		{flag: "capture-all-dns", isBool: true, set: isBool(func(r r) *bool { return &r.DNS.All })},
		{
			flag: "drop-invalid", variables: []string{"INVALID_DROP"}, isBool: true,
			set: isBool(func(r r) *bool { return &r.DropInvalid }),
		},
		{
			flag: "dual-stack", variables: []string{"ISTIO_DUAL_STACK"}, isBool: true,
			set: isBool(func(r r) *bool { return &r.IPv6 }),
		},
		{
			variables: []string{"ISTIO_OUTBOUND_OWNER_GROUPS"},
			set: set(parseGroupSelection, func(r r) *rules.GroupSelection {
				return &r.OwnerGroups
			}),
		},
		{
			variables: []string{"ISTIO_OUTBOUND_OWNER_GROUPS_EXCLUDE"},
			set: set(parseGroups, func(r r) *[]rules.IDRange {
				return &r.OwnerGroupsExclude
			}),
		},
		{
			variables: []string{"ISTIO_OUTBOUND_IPV4_LOOPBACK_CIDR"},
			set: set(rules.ParseLoopbackCIDR, func(r r) *netip.Prefix {
				return &r.LoopbackCIDR
			}),
		},
	}
}

// Redirect returns the parameters of the configuration, with all deviations enabled. The error
// lists all invalid values.
func (c Configuration) Redirect() (rules.Redirect, error) {
	r := rules.DefaultRedirect()
	r.ProxyUIDs, r.ProxyGIDs = nil, nil
	inputs := inputs()
	flags, err := parseFlags(inputs, c.Args)
	if err != nil {
		return r, err
	}
	var errs []error
	for _, in := range inputs {
		if text, ok := c.value(in, flags); ok {
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

// value returns the text to which an input is set, and false if it is not set.
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
	var found bool
	for _, v := range variables {
		text, ok := c.variable(v)
		if _, err := strconv.ParseBool(text); ok && (!in.isBool || err == nil) {
			last, found = text, true
		}
	}
	return last, found
}

// complete sets the fields that depend on the pod.
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

func parseUsers(text string) ([]rules.IDRange, error)  { return rules.ParseIDs(text, lookupUser) }
func parseGroups(text string) ([]rules.IDRange, error) { return rules.ParseIDs(text, lookupGroup) }

func parseGroupSelection(text string) (rules.GroupSelection, error) {
	return rules.ParseGroupSelection(text, lookupGroup)
}

func lookupUser(name string) (uint32, error) {
	u, err := user.Lookup(name)
	if err != nil {
		return 0, err
	}
	return parseID(u.Uid)
}

func lookupGroup(name string) (uint32, error) {
	g, err := user.LookupGroup(name)
	if err != nil {
		return 0, err
	}
	return parseID(g.Gid)
}

// parseID parses a numeric user or group id.
func parseID(text string) (uint32, error) {
	n, err := strconv.ParseUint(text, 10, 32)
	if err != nil {
		return 0, fmt.Errorf("id %q: %w", text, err)
	}
	return uint32(n), nil
}
