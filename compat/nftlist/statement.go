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

// recordChanges records the names of the sets that an unsupported statement may change. readRule
// has already recorded the names in an unknown statement of text.
func (in *reader) recordChanges(s statement) {
	var text string
	switch {
	case in.isText && s.kind == "" || onlyReadsSets(s.kind):
	case s.kind != "":
		in.recordMembers(s)
	case json.Unmarshal([]byte(s.text), &text) == nil && s.text != "null":
		scan := scanner{text: text}
		for t := scan.next(); t.kind != endOfText; t = scan.next() {
			in.recordNames([]token{t})
		}
	default:
		in.mayChangeAnySet = true
	}
}

// onlyReadsSets reports whether a kind of statement uses sets without changing them.
func onlyReadsSets(kind string) bool {
	switch kind {
	case "match", "vmap", "mangle", "dnat", "snat", "masquerade", "redirect", "tproxy":
		return true
	}
	return false
}

// recordNames records the names of sets among the tokens of an unknown statement.
func (in *reader) recordNames(tokens []token) {
	for _, token := range tokens {
		if name, ok := strings.CutPrefix(token.text, "@"); ok {
			in.changedSets[name] = true
		}
	}
}

// recordMembers records the names of sets in the members of a statement: texts that begin with @,
// and the name of a meter.
func (in *reader) recordMembers(s statement) {
	decoder := json.NewDecoder(bytes.NewReader(s.body))
	for {
		next, err := decoder.Token()
		if err != nil {
			return
		}
		if text, ok := next.(string); ok {
			name, isSet := strings.CutPrefix(text, "@")
			if isSet || s.kind == "meter" {
				in.changedSets[name] = true
			}
		}
	}
}

// isNull reports whether a statement has no body, which is null in JSON.
func isNull(body json.RawMessage) bool { return len(body) == 0 || string(body) == "null" }

// exactly decodes an object. It returns false if the object has fields that the target lacks.
func exactly(body json.RawMessage, to any) bool {
	decoder := json.NewDecoder(bytes.NewReader(body))
	decoder.DisallowUnknownFields()
	return string(body) != "null" && decoder.Decode(to) == nil
}
