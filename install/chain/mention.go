package chain

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
)

// Mentions returns the types of plugins that a configuration names anywhere, sorted: those of its
// chain, and those within them, as of the copies to which Multus delegates. It returns none of what
// is not JSON.
func Mentions(data []byte) []string {
	v, err := value(json.RawMessage(data))
	if err != nil {
		return nil
	}
	types := map[string]bool{}
	mention(v, types)
	return slices.Sorted(maps.Keys(types))
}

// mention adds the types that a JSON value names.
func mention(v any, types map[string]bool) {
	switch v := v.(type) {
	case []any:
		for _, element := range v {
			mention(element, types)
		}
	case map[string]any:
		for key, member := range v {
			if plugin, ok := member.(string); ok && plugin != "" && strings.EqualFold(key, "type") { // libcni does not tell the cases apart
				types[plugin] = true
			}
			mention(member, types)
		}
	}
}
