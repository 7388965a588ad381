package config

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/sluice-mesh/sluice/plugin/text"
)

// Type is the plugin's type in a network configuration list.
const Type = "sluice-cni"

// ParseList parses the content of a configuration file: a network configuration list with one entry
// of the plugin, or the object of the plugin alone. The list's name and version apply to the plugin
// unless its entry has its own. If no version is given, it is the latest of [Versions]. The error
// is an error of [Parse], or describes what is wrong with the list.
func ParseList(data []byte) (*Config, error) {
	var object map[string]json.RawMessage
	if err := json.Unmarshal(data, &object); err != nil {
		return nil, fmt.Errorf("decode the network configuration: %w", err)
	}
	if object == nil {
		return nil, errors.New("decode the network configuration: got null, want an object")
	}
	entry := object
	if raw, isList := object["plugins"]; isList {
		var err error
		if entry, err = pluginEntry(raw); err != nil {
			return nil, err
		}
	}
	for _, field := range []string{"cniVersion", "name"} {
		if _, ok := entry[field]; !ok && object[field] != nil {
			entry[field] = object[field]
		}
	}
	if _, ok := entry["cniVersion"]; !ok {
		versions := Versions()
		entry["cniVersion"], _ = json.Marshal(versions[len(versions)-1])
	}
	data, err := json.Marshal(entry)
	if err != nil {
		return nil, err
	}
	return Parse(data)
}

// pluginEntry returns the plugin's entry in a list of plugins. The list must contain exactly one.
func pluginEntry(plugins json.RawMessage) (map[string]json.RawMessage, error) {
	var entries []map[string]json.RawMessage
	if json.Unmarshal(plugins, &entries) != nil {
		return nil, fmt.Errorf("plugins: %s is not a list of objects",
			text.Truncate(string(plugins), maxValueLen))
	}
	var found map[string]json.RawMessage
	for _, entry := range entries {
		var pluginType string
		if json.Unmarshal(entry["type"], &pluginType) != nil || pluginType != Type {
			continue
		}
		if found != nil {
			return nil, errors.New(
				"plugins: more than one entry of type " + Type + "; remove all but one")
		}
		found = entry
	}
	if found == nil {
		return nil, errors.New("plugins: no entry of type " + Type + "; add one")
	}
	return found, nil
}
