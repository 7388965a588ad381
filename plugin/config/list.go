package config

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/sluice-mesh/sluice/plugin/text"
)

// Type is the plugin's type in a network configuration list.
const Type = "sluice-cni"

// ParseList parses the content of a configuration file: a network configuration list that has the
// plugin once, or the object of the plugin alone. As in a runtime, the list's name and version
// apply to the plugin; the object alone may lack both. The error is one of [Parse], or says what
// the list lacks.
func ParseList(data []byte) (*Config, error) {
	var object map[string]json.RawMessage
	if err := json.Unmarshal(data, &object); err != nil {
		return nil, fmt.Errorf("decode the network configuration: %w", err)
	}
	if object == nil {
		return nil, errors.New("decode the network configuration: it is null and no object")
	}
	element := object
	if raw, isList := object["plugins"]; isList {
		var err error
		if element, err = only(raw); err != nil {
			return nil, err
		}
	}
	for _, field := range []string{"cniVersion", "name"} {
		if _, stated := element[field]; !stated && object[field] != nil {
			element[field] = object[field]
		}
	}
	if _, stated := element["cniVersion"]; !stated {
		versions := Versions()
		element["cniVersion"], _ = json.Marshal(versions[len(versions)-1])
	}
	whole, err := json.Marshal(element)
	if err != nil {
		return nil, err
	}
	return Parse(whole)
}

// only returns the element of this plugin in a list of plugins, which must be the only one.
func only(plugins json.RawMessage) (map[string]json.RawMessage, error) {
	var elements []map[string]json.RawMessage
	if json.Unmarshal(plugins, &elements) != nil {
		return nil, fmt.Errorf("plugins: %s is no list of objects",
			text.Cut(string(plugins), maxReport))
	}
	var found map[string]json.RawMessage
	for _, element := range elements {
		var kind string
		if json.Unmarshal(element["type"], &kind) != nil || kind != Type {
			continue
		}
		if found != nil {
			return nil, errors.New("plugins: there are several of type " + Type)
		}
		found = element
	}
	if found == nil {
		return nil, errors.New("plugins: no entry of type " + Type)
	}
	return found, nil
}
