package plugin

import (
	"encoding/json"
	"fmt"
	"net/netip"

	"github.com/containernetworking/cni/pkg/types/create"
)

// resultFor returns the result of a plugin that changes nothing: the previous one in the version of the configuration. If it has that
// version already, all of it stays as it was written, also what this version of the specification does not know. Without a previous
// result it has the version and nothing else.
func resultFor(previous json.RawMessage, version string) (json.RawMessage, error) {
	fields := map[string]json.RawMessage{}
	if previous != nil {
		if err := json.Unmarshal(previous, &fields); err != nil {
			return nil, fmt.Errorf("prevResult: %w", err)
		}
	}
	var has string
	if raw, stated := fields["cniVersion"]; stated {
		if err := json.Unmarshal(raw, &has); err != nil {
			return nil, fmt.Errorf("prevResult: cniVersion: %w", err)
		}
	}
	switch has {
	case version:
		return previous, nil
	case "": // before 1.0.0 a result need not state it, and has that of the configuration
		fields["cniVersion"], _ = json.Marshal(version)
		return json.Marshal(fields)
	}
	result, err := create.CreateFromBytes(previous)
	if err != nil {
		return nil, fmt.Errorf("prevResult: %w", err)
	}
	if result, err = result.GetAsVersion(version); err != nil {
		return nil, fmt.Errorf("prevResult: %w", err)
	}
	return json.Marshal(result)
}

// addressesOf returns the addresses of a result of version 0.3.0 or later, in their order.
func addressesOf(result json.RawMessage) ([]netip.Addr, error) {
	var r struct {
		IPs []struct {
			Address string `json:"address"`
		} `json:"ips"`
	}
	if err := json.Unmarshal(result, &r); err != nil {
		return nil, fmt.Errorf("prevResult: %w", err)
	}
	var addresses []netip.Addr
	for i, ip := range r.IPs {
		prefix, err := netip.ParsePrefix(ip.Address)
		if err != nil {
			return nil, fmt.Errorf("prevResult: ips[%d].address: %q is not allowed: want an address with the length of its prefix", i, ip.Address)
		}
		addresses = append(addresses, prefix.Addr())
	}
	return addresses, nil
}
