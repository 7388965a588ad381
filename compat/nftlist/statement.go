package nftlist

import (
	"bytes"
	"encoding/json"
	"strings"
)

// A statement of a rule in the form of JSON. The kind is empty if it is unknown.
type statement struct {
	kind string
	body json.RawMessage
	text string // in an explanation of what is unknown
}

// UnmarshalJSON decodes an object of one statement. nft writes a string for some that have no form
// in JSON, such as a jump to an anonymous chain.
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

// noteChanges records the names of the sets that a statement changes that is not supported.
func (in *reader) noteChanges(s statement) {
	if s.kind != "set" && s.kind != "map" {
		return
	}
	var change struct {
		Set string `json:"set"`
		Map string `json:"map"`
	}
	if json.Unmarshal(s.body, &change) == nil {
		in.changed[strings.TrimPrefix(change.Set, "@")] = true
		in.changed[strings.TrimPrefix(change.Map, "@")] = true
	}
}

// exactly decodes an object that has no other fields.
func exactly(body json.RawMessage, to any) bool {
	decoder := json.NewDecoder(bytes.NewReader(body))
	decoder.DisallowUnknownFields()
	return string(body) != "null" && decoder.Decode(to) == nil
}
