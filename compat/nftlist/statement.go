package nftlist

import (
	"bytes"
	"encoding/json"
	"strings"
)

// A statement is a statement of a rule as nft represents it in JSON.
type statement struct {
	kind string // empty if it is unknown
	body json.RawMessage
	text string // of the unknown condition or action if the statement is not supported
}

// UnmarshalJSON decodes a statement. nft writes a string for a statement that JSON cannot
// represent, such as a jump to an anonymous chain.
func (s *statement) UnmarshalJSON(object []byte) error {
	*s = statement{text: string(object)}
	var fields map[string]json.RawMessage
	if json.Unmarshal(object, &fields) == nil && len(fields) == 1 {
		for s.kind, s.body = range fields {
			s.text = s.kind + " " + string(s.body)
		}
	}
	return nil
}

// recordChanges records the names of the sets that an unsupported statement may change.
func (in *reader) recordChanges(s statement) {
	if s.kind != "set" && s.kind != "map" {
		return
	}
	var change struct {
		Set string `json:"set"`
		Map string `json:"map"`
	}
	if json.Unmarshal(s.body, &change) == nil {
		in.changedSets[strings.TrimPrefix(change.Set, "@")] = true
		in.changedSets[strings.TrimPrefix(change.Map, "@")] = true
	}
}

// exactly decodes an object. It returns false if the object has fields that the target lacks.
func exactly(body json.RawMessage, to any) bool {
	decoder := json.NewDecoder(bytes.NewReader(body))
	decoder.DisallowUnknownFields()
	return string(body) != "null" && decoder.Decode(to) == nil
}
