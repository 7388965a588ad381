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
	element := object
	if raw, isList := object["plugins"]; isList {
		var err error
		if element, err = pluginEntry(raw); err != nil {
			return nil, err
		}
	}
	for _, field := range []string{"cniVersion", "name"} {
		if _, ok := element[field]; !ok && object[field] != nil {
			element[field] = object[field]
		}
	}
	if _, ok := element["cniVersion"]; !ok {
		versions := Versions()
		element["cniVersion"], _ = json.Marshal(versions[len(versions)-1])
	}
	data, err := json.Marshal(element)
	if err != nil {
		return nil, err
	}
	return Parse(data)
}

// pluginEntry returns the plugin's element of a list of plugins. The list must contain exactly one.
func pluginEntry(plugins json.RawMessage) (map[string]json.RawMessage, error) {
	var elements []map[string]json.RawMessage
	if json.Unmarshal(plugins, &elements) != nil {
		return nil, fmt.Errorf("plugins: %s is not a list of objects",
			text.Truncate(string(plugins), maxValueLen))
	}
	var found map[string]json.RawMessage
	for _, element := range elements {
		var kind string
		if json.Unmarshal(element["type"], &kind) != nil || kind != Type {
			continue
		}
		if found != nil {
			return nil, errors.New(
				"plugins: more than one entry of type " + Type + "; remove all but one")
		}
		found = element
	}
	if found == nil {
		return nil, errors.New("plugins: no entry of type " + Type + "; add one")
	}
	return found, nil
}
