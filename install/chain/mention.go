package chain

import (
	"maps"
	"slices"
	"strings"
)

// Mentions returns the sorted types of all plugins in a configuration, including nested plugins,
// for example in the copies to which Multus delegates. It returns nil for invalid JSON.
func Mentions(data []byte) []string {
	v, err := decodeValue(data)
	if err != nil {
		return nil
	}
	types := map[string]bool{}
	collectTypes(v, types)
	return slices.Sorted(maps.Keys(types))
}

// collectTypes adds the types of plugins in a JSON value to types.
func collectTypes(v any, types map[string]bool) {
	switch v := v.(type) {
	case []any:
		for _, element := range v {
			collectTypes(element, types)
		}
	case map[string]any:
		for key, member := range v {
			// libcni ignores the case of keys.
			if plugin, ok := member.(string); ok && plugin != "" && strings.EqualFold(key, "type") {
				types[plugin] = true
			}
			collectTypes(member, types)
		}
	}
}
