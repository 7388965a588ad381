package nftlist

import (
	"bytes"
	"encoding/json"
	"fmt"
)

// A checkedType is a type of set elements whose invalid elements are errors. For other types, an
// element that cannot be encoded may be a name that is not known, and is unknown.
type checkedType struct {
	datatype
	allowed string // describes the elements of the type
}

var checkedTypes = map[string]checkedType{
	"ipv4_addr":    {ipv4Type, "an IPv4 address, a prefix, or a range of addresses" + withoutNames},
	"ipv6_addr":    {ipv6Type, "an IPv6 address, a prefix, or a range of addresses" + withoutNames},
	"inet_service": {portType, "a port (0-65535), or a range of ports"},
}

// withoutNames tells how to avoid host names, which the evaluation cannot resolve.
const withoutNames = ", as nft lists them without -N"

// checkElements returns an error for the first element of a set or a map that its type does not
// allow.
func (s *setObject) checkElements() error {
	var types []string
	var single string
	if json.Unmarshal(s.Type, &single) == nil {
		types = []string{single}
	} else if json.Unmarshal(s.Type, &types) != nil {
		return nil
	}
	for _, e := range s.Elements {
		element, ok := decodeElement(e, s.Map != nil)
		if !ok || string(element.key) == `"*"` {
			continue
		}
		parts := []json.RawMessage{element.key}
		if len(types) > 1 {
			parts = listIn(element.key, "concat")
		}
		for i, part := range parts {
			if i == len(types) {
				break
			}
			if t, ok := checkedTypes[types[i]]; ok && t.rejects(part) {
				return fmt.Errorf("element %s is not %s", truncate(string(part)), t.allowed)
			}
		}
	}
	return nil
}

// rejects reports whether a value is invalid. It returns false for names, except for names in place
// of addresses, and for forms that the package does not know.
func (t checkedType) rejects(e json.RawMessage) bool {
	if bounds := listIn(e, "range"); len(bounds) == 2 {
		key, ok := t.interval(e, true)
		return t.rejects(bounds[0]) || t.rejects(bounds[1]) || ok && bytes.Compare(key[0], key[1]) > 0
	}
	if kind, _ := onlyMember(e); kind == "prefix" && t.kind == address {
		_, ok := t.prefix(e)
		return !ok
	}
	isOtherForm := e[0] == '{' || e[0] == '['
	isName := t.kind != address && e[0] == '"'
	_, ok := t.scalar(e, true)
	return !ok && !isName && !isOtherForm
}
