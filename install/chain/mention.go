package chain

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
)

// Mentions returns the sorted types of all plugins in a configuration, including nested ones, such
// as those in the copies to which Multus delegates. It returns nil for invalid JSON.
func Mentions(data []byte) []string {
	v, err := value(json.RawMessage(data))
	if err != nil {
		return nil
	}
	types := map[string]bool{}
	mention(v, types)
	return slices.Sorted(maps.Keys(types))
}

// mention adds the types in a JSON value.
func mention(v any, types map[string]bool) {
	switch v := v.(type) {
	case []any:
		for _, element := range v {
			mention(element, types)
		}
	case map[string]any:
		for key, member := range v {
			// libcni ignores case
			if plugin, ok := member.(string); ok && plugin != "" && strings.EqualFold(key, "type") {
				types[plugin] = true
			}
			mention(member, types)
		}
	}
}
