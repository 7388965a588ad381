package plugin

import (
	"encoding/json"
	"fmt"
	"net/netip"

	"github.com/containernetworking/cni/pkg/types/create"
)

// convertResult converts the previous plugin's result to a version of the CNI specification. A
// result in that version is returned unchanged, even with fields that the version does not define.
// Without a previous result, the result contains only the version.
func convertResult(previous json.RawMessage, version string) (json.RawMessage, error) {
	fields := map[string]json.RawMessage{}
	if previous != nil {
		if err := json.Unmarshal(previous, &fields); err != nil {
			return nil, fmt.Errorf("prevResult: %w", err)
		}
	}
	var current string
	if raw, ok := fields["cniVersion"]; ok {
		if err := json.Unmarshal(raw, &current); err != nil {
			return nil, fmt.Errorf("prevResult: cniVersion: %w", err)
		}
	}
	switch current {
	case version:
		return previous, nil
	case "": // before 1.0.0 a result may omit its version, which is then the configuration's
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

// parseAddresses returns the addresses of a result of version 0.3.0 or later, in their order.
func parseAddresses(result json.RawMessage) ([]netip.Addr, error) {
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
			const format = "prevResult: ips[%d].address: %q is invalid: " +
				"want an address with a prefix length"
			return nil, fmt.Errorf(format, i, ip.Address)
		}
		addresses = append(addresses, prefix.Addr())
	}
	return addresses, nil
}
