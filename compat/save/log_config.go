package save

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"

	"github.com/sluice-mesh/sluice/rules"
)

// configured returns a value of the configuration that the run printed, empty if there is none.
func (r *istioRun) configured(key string) string {
	if r.config != nil {
		for _, l := range r.config.lines[1:] {
			if value, ok := strings.CutPrefix(l.text, key+"="); ok {
				return value
			}
		}
	}
	return ""
}

// redirect makes parameters of the configuration that the run printed, or says why that cannot be.
func (r *istioRun) redirect(file string) (*rules.Redirect, error) {
	if r.config == nil {
		return nil, fmt.Errorf("%s: the log does not show the configuration", file)
	}
	c := configReader{file: file, title: r.config.lines[0].number, values: map[string]configValue{}}
	for _, l := range r.config.lines[1:] {
		if key, value, ok := strings.Cut(l.text, "="); ok {
			c.values[key] = configValue{value, l.number}
		}
	}
	if r.configured("CLEANUP_ONLY") == "true" {
		return nil, fmt.Errorf("%s:%d: the run only removed rules", file, c.title)
	}
	redirect := c.redirect()
	if len(c.faults) == 0 {
		if err := redirect.Validate(); err != nil {
			c.faults = append(c.faults, fmt.Errorf("%s:%d: %w", file, c.title, err))
		}
	}
	if len(c.faults) > 0 {
		return nil, errors.Join(c.faults...)
	}
	return &redirect, nil
}

// A configReader reads the values of a configuration.
type configReader struct {
	file   string
	title  int // the line where it begins
	values map[string]configValue
	faults []error
}

type configValue struct {
	text string
	line int
}

// redirect reads what istio-iptables printed of its configuration (Config.Print of its tools/common/config).
func (c *configReader) redirect() rules.Redirect {
	r := rules.DefaultRedirect()
	// To istio-iptables every mode but TPROXY is REDIRECT, whatever it says.
	if read(c, "INBOUND_INTERCEPTION_MODE", asText) == string(rules.ModeTProxy) {
		r.Mode = rules.ModeTProxy
	}
	numeric := func(text string) ([]rules.IDRange, error) { return rules.ParseIDs(text, nil) }
	r.ProxyPort = read(c, "PROXY_PORT", rules.ParsePort)
	r.InboundCapturePort = read(c, "PROXY_INBOUND_CAPTURE_PORT", rules.ParsePort)
	r.TunnelPort = read(c, "PROXY_TUNNEL_PORT", rules.ParsePort)
	r.ProxyUIDs = read(c, "PROXY_UID", numeric)
	r.ProxyGIDs = read(c, "PROXY_GID", numeric)
	r.TProxyMark = read(c, "INBOUND_TPROXY_MARK", rules.ParseMark)
	r.TProxyRouteTable = read(c, "INBOUND_TPROXY_ROUTE_TABLE", rules.ParseMark)
	r.InboundPorts = read(c, "INBOUND_PORTS_INCLUDE", rules.ParsePortSelection)
	r.InboundExcludePorts = read(c, "INBOUND_PORTS_EXCLUDE", rules.ParsePorts)
	r.OutboundCIDRs = read(c, "OUTBOUND_IP_RANGES_INCLUDE", rules.ParsePrefixSelection)
	r.OutboundExcludeCIDRs = read(c, "OUTBOUND_IP_RANGES_EXCLUDE", rules.ParsePrefixes)
	r.OutboundPorts = read(c, "OUTBOUND_PORTS_INCLUDE", rules.ParsePorts)
	r.OutboundExcludePorts = read(c, "OUTBOUND_PORTS_EXCLUDE", rules.ParsePorts)
	r.OwnerGroups = read(c, "OUTBOUND_OWNER_GROUPS_INCLUDE", func(text string) (rules.GroupSelection, error) {
		return rules.ParseGroupSelection(text, nil)
	})
	r.OwnerGroupsExclude = read(c, "OUTBOUND_OWNER_GROUPS_EXCLUDE", numeric)
	r.ExcludeInterfaces = read(c, "EXCLUDE_INTERFACES", rules.ParseInterfaces)
	r.RerouteInterfaces = read(c, "KUBE_VIRT_INTERFACES", rules.ParseInterfaces)
	r.DropInvalid = read(c, "DROP_INVALID", rules.ParseBool)
	r.IPv6 = read(c, "ENABLE_INBOUND_IPV6", rules.ParseBool)
	r.DNS.Capture = read(c, "DNS_CAPTURE", rules.ParseBool)
	r.DNS.All = read(c, "CAPTURE_ALL_DNS", rules.ParseBool)
	r.DNS.Servers = read(c, "DNS_SERVERS", dnsServers)
	return r
}

func asText(text string) (string, error) { return text, nil }

// read reads one value, and notes what is wrong with it.
func read[T any](c *configReader, key string, parse func(string) (T, error)) T {
	v, found := c.values[key]
	if !found {
		var none T
		c.faults = append(c.faults, fmt.Errorf("%s:%d: the configuration does not say %s", c.file, c.title, key))
		return none
	}
	value, err := parse(v.text)
	if err != nil {
		c.faults = append(c.faults, fmt.Errorf("%s:%d: %s: %w", c.file, v.line, key, err))
	}
	return value
}

// dnsServers reads "[10.96.0.10 10.96.0.11],[fd00::a]": those of IPv4 and those of IPv6.
func dnsServers(text string) ([]netip.Addr, error) {
	var servers []netip.Addr
	for field := range strings.FieldsFuncSeq(text, func(c rune) bool { return strings.ContainsRune("[], ", c) }) {
		a, err := rules.ParseServer(field)
		if err != nil {
			return nil, err
		}
		servers = append(servers, a)
	}
	return servers, nil
}
