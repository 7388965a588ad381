package chain

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
)

// Mentions reports whether a configuration contains a plugin of a type, including nested plugins,
// for example in the copies to which Multus delegates. For invalid JSON, which may become valid
// later, it reports whether the text contains the quoted type.
func Mentions(data []byte, plugin string) bool {
	if !json.Valid(data) {
		return bytes.Contains(data, []byte(`"`+plugin+`"`))
	}
	v, err := decodeValue(data)
	return err == nil && containsType(v, plugin)
}

// containsType reports whether a JSON value contains a plugin of a type.
func containsType(v any, plugin string) bool {
	switch v := v.(type) {
	case []any:
		return slices.ContainsFunc(v, func(element any) bool { return containsType(element, plugin) })
	case map[string]any:
		for key, member := range v {
			// libcni ignores the case of keys.
			if member == plugin && strings.EqualFold(key, "type") || containsType(member, plugin) {
				return true
			}
		}
	}
	return false
}
