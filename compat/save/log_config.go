package save

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"

	"github.com/sluice-mesh/sluice/rules"
)

// configValue returns a value of the printed configuration, or an empty string.
func (r *istioRun) configValue(key string) string {
	if r.configEntry != nil {
		for _, l := range r.configEntry.lines[1:] {
			if value, ok := strings.CutPrefix(l.text, key+"="); ok {
				return value
			}
		}
	}
	return ""
}

// redirect returns the parameters in the printed configuration, and the names of the parameters
// that the configuration does not contain. If the parameters are not usable, the error is the
// reason.
func (r *istioRun) redirect(file string) (_ *rules.Redirect, unstated []string, _ error) {
	if r.configEntry == nil {
		return nil, nil, fmt.Errorf("%s: the log does not contain the configuration", file)
	}
	c := configReader{
		file: file, line: r.configEntry.lines[0].number, values: map[string]configValue{},
	}
	c.older = r.configEntry.title() != "Istio config:"
	for _, l := range r.configEntry.lines[1:] {
		if key, value, ok := strings.Cut(l.text, "="); ok {
			c.values[key] = configValue{value, l.number}
		}
	}
	if r.configValue("CLEANUP_ONLY") == "true" {
		return nil, nil, fmt.Errorf("%s:%d: the run only removed rules", file, c.line)
	}
	redirect := c.redirect()
	if len(c.errs) == 0 {
		if err := redirect.Validate(); err != nil {
			c.errs = append(c.errs, fmt.Errorf("%s:%d: %w", file, c.line, err))
		}
	}
	if len(c.errs) > 0 {
		return nil, nil, errors.Join(c.errs...)
	}
	return &redirect, append(c.unstated, "HOST_IPV4_LOOPBACK_CIDR"), nil
}

// A configReader parses the values of a configuration.
type configReader struct {
	file   string
	line   int // the line at which the configuration begins
	values map[string]configValue
	errs   []error
	// older is set if the log is of an older version of istio-iptables, which has another title for
	// the configuration and may print fewer parameters.
	older    bool
	unstated []string
}

type configValue struct {
	text string
	line int
}

// redirect parses the configuration printed by istio-iptables (Config.Print in its
// tools/common/config).
func (c *configReader) redirect() rules.Redirect {
	r := rules.DefaultRedirect()
	// istio-iptables treats every mode other than TPROXY as REDIRECT.
	asText := func(text string) (string, error) { return text, nil }
	if read(c, "INBOUND_INTERCEPTION_MODE", asText) == string(rules.ModeTProxy) {
		r.Mode = rules.ModeTProxy
	}
	numeric := func(text string) ([]rules.IDRange, error) { return rules.ParseIDs(text, nil) }
	r.ProxyPort = read(c, "PROXY_PORT", rules.ParsePort)
	r.InboundCapturePort = read(c, "PROXY_INBOUND_CAPTURE_PORT", rules.ParsePort)
	r.TunnelPort = readOr(c, "PROXY_TUNNEL_PORT", rules.ParsePort, r.TunnelPort)
	r.ProxyUIDs = read(c, "PROXY_UID", numeric)
	r.ProxyGIDs = readOr(c, "PROXY_GID", numeric, r.ProxyUIDs)
	r.TProxyMark = read(c, "INBOUND_TPROXY_MARK", rules.ParseMark)
	r.TProxyRouteTable = read(c, "INBOUND_TPROXY_ROUTE_TABLE", rules.ParseMark)
	r.InboundPorts = read(c, "INBOUND_PORTS_INCLUDE", rules.ParsePortSelection)
	r.InboundExcludePorts = read(c, "INBOUND_PORTS_EXCLUDE", rules.ParsePorts)
	r.OutboundCIDRs = read(c, "OUTBOUND_IP_RANGES_INCLUDE", rules.ParsePrefixSelection)
	r.OutboundExcludeCIDRs = read(c, "OUTBOUND_IP_RANGES_EXCLUDE", rules.ParsePrefixes)
	r.OutboundPorts = readOr(c, "OUTBOUND_PORTS_INCLUDE", rules.ParsePorts, nil)
	r.OutboundExcludePorts = read(c, "OUTBOUND_PORTS_EXCLUDE", rules.ParsePorts)
	groups := func(text string) (rules.GroupSelection, error) {
		return rules.ParseGroupSelection(text, nil)
	}
	r.OwnerGroups = readOr(c, "OUTBOUND_OWNER_GROUPS_INCLUDE", groups, r.OwnerGroups)
	r.OwnerGroupsExclude = readOr(c, "OUTBOUND_OWNER_GROUPS_EXCLUDE", numeric, nil)
	r.ExcludeInterfaces = readOr(c, "EXCLUDE_INTERFACES", rules.ParseInterfaces, nil)
	r.RerouteInterfaces = read(c, c.virtualInterfaces(), rules.ParseInterfaces)
	r.DropInvalid = readOr(c, "DROP_INVALID", rules.ParseBool, false)
	r.IPv6 = read(c, "ENABLE_INBOUND_IPV6", c.parseEnabled)
	r.DNS.Servers = readOr(c, "DNS_SERVERS", parseServers, nil)
	// istio-iptables determines the servers only if it captures DNS.
	r.DNS.Capture = readOr(c, "DNS_CAPTURE", rules.ParseBool, len(r.DNS.Servers) > 0)
	r.DNS.All = readOr(c, "CAPTURE_ALL_DNS", rules.ParseBool, false)
	return r
}

// virtualInterfaces returns the name of the parameter for virtual interfaces. The name changed
// after version 1.11.
func (c *configReader) virtualInterfaces() string {
	if _, found := c.values["KUBEVIRT_INTERFACES"]; found {
		return "KUBEVIRT_INTERFACES"
	}
	return "KUBE_VIRT_INTERFACES"
}

// parseEnabled parses the parameter ENABLE_INBOUND_IPV6. Versions up to 1.5 print the pod's
// address, nothing or <nil> instead of a boolean.
func (c *configReader) parseEnabled(text string) (bool, error) {
	if _, err := netip.ParseAddr(text); err == nil && c.older {
		return true, nil
	}
	if c.older && (text == "" || text == "<nil>") {
		return false, nil
	}
	return rules.ParseBool(text)
}

// isEnabled reports whether the value of ENABLE_INBOUND_IPV6 means true in any version.
func isEnabled(text string) bool {
	isTrue, err := (&configReader{older: true}).parseEnabled(text)
	return isTrue && err == nil
}

// read parses the value of a parameter. It records an error if the value is missing or invalid.
func read[T any](c *configReader, key string, parse func(string) (T, error)) T {
	v, found := c.values[key]
	if !found {
		var zero T
		c.errs = append(c.errs,
			fmt.Errorf("%s:%d: the configuration does not contain %s", c.file, c.line, key))
		return zero
	}
	value, err := parse(v.text)
	if err != nil {
		c.errs = append(c.errs, fmt.Errorf("%s:%d: %s: %w", c.file, v.line, key, err))
	}
	return value
}

// readOr parses the value of a parameter that older versions lack or do not print. If the log of an
// older version does not contain it, readOr returns absent, which is the default value of that
// version.
func readOr[T any](c *configReader, key string, parse func(string) (T, error), absent T) T {
	if _, found := c.values[key]; !found && c.older {
		c.unstated = append(c.unstated, key)
		return absent
	}
	return read(c, key, parse)
}

// parseServers parses "[10.96.0.10 10.96.0.11],[fd00::a]": the IPv4 servers and the IPv6 servers.
func parseServers(text string) ([]netip.Addr, error) {
	var servers []netip.Addr
	for field := range strings.FieldsFuncSeq(text, func(c rune) bool {
		return strings.ContainsRune("[], ", c)
	}) {
		a, err := rules.ParseServer(field)
		if err != nil {
			return nil, err
		}
		servers = append(servers, a)
	}
	return servers, nil
}
