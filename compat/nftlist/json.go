package nftlist

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/sluice-mesh/sluice/compat/save"
)

// schemaVersion is the supported version of the format.
const schemaVersion = 1

type metaObject struct {
	Version *int `json:"json_schema_version"`
}

// readJSON reads the output of nft -j list ruleset.
func (in *reader) readJSON(file string, text []byte) error {
	var document struct {
		Objects []map[string]json.RawMessage `json:"nftables"`
	}
	if err := json.Unmarshal(text, &document); err != nil {
		return notJSON(file, text, err)
	}
	if document.Objects == nil {
		return fmt.Errorf(
			`%s: there is no list "nftables": want the output of nft -j list ruleset%s`,
			file, save.LooksLike(string(text)))
	}
	for i, object := range document.Objects {
		for kind, body := range object {
			if err := in.readObject(kind, body); err != nil {
				return fmt.Errorf("%s: object %d, %s: %w", file, i+1, kind, describeTypeError(err))
			}
		}
	}
	return nil
}

// notJSON returns the error for a text that is not JSON, with the position of the error, or for
// JSON with types other than a listing's.
func notJSON(file string, text []byte, err error) error {
	const want = "the output of nft -j list ruleset"
	syntax := (*json.SyntaxError)(nil)
	if !errors.As(err, &syntax) {
		return fmt.Errorf("%s: %w: want %s", file, describeTypeError(err), want)
	}
	// The offset is the offset after the first wrong byte, or the end of the text.
	at := min(int(syntax.Offset), len(text))
	e := &save.SyntaxError{File: file, Want: want + ", which is JSON: " + syntax.Error()}
	if !strings.HasPrefix(syntax.Error(), "unexpected end") && at > 0 {
		at--
		e.Token = string(text[at:])
		if end := strings.IndexAny(e.Token, " \t\r\n,:[]{}"); end >= 0 {
			e.Token = e.Token[:max(end, 1)]
		}
	}
	before := text[:at]
	e.Line = 1 + bytes.Count(before, []byte("\n"))
	e.Column = at - bytes.LastIndexByte(before, '\n')
	return e
}

// describeTypeError describes a value of the wrong type in JSON's terms instead of Go's, and
// truncates a long value.
func describeTypeError(err error) error {
	wrong := (*json.UnmarshalTypeError)(nil)
	if !errors.As(err, &wrong) {
		return err
	}
	return fmt.Errorf("field %q is %s", wrong.Field, truncate(wrong.Value))
}

// truncate returns a value for an error. It omits the end of a long value.
func truncate(value string) string {
	if len(value) > maxValueLength {
		return value[:maxValueLength] + "..."
	}
	return value
}

// maxValueLength is the maximum length of a value in an error, in bytes.
const maxValueLength = 40

// readObject stores a table, a chain, a rule, a set or a map. It checks the version, rejects
// commands, and ignores other objects, such as named counters: the effect of the statements that
// use them does not depend on their values.
func (in *reader) readObject(kind string, body json.RawMessage) error {
	switch kind {
	case "metainfo":
		m, err := decoded[metaObject](body)
		if err == nil && m.Version != nil && *m.Version != schemaVersion {
			err = fmt.Errorf("version %d of the format: want %d", *m.Version, schemaVersion)
		}
		return err
	case "table":
		t, err := decoded[tableObject](body)
		in.tables = append(in.tables, t)
		return err
	case "chain":
		c, err := decoded[chainObject](body)
		in.chains = append(in.chains, c)
		return err
	case "rule":
		r, err := decoded[ruleObject](body)
		if err == nil && r.Statements == nil {
			err = errors.New(`there is no list "expr"`)
		}
		in.addRule(r)
		return err
	case "set", "map":
		s, err := decoded[setObject](body)
		in.sets[objectID{s.Family, s.Table, s.Name}] = s
		if err == nil {
			err = s.checkElements()
		}
		if wrong := (*json.UnmarshalTypeError)(nil); errors.As(err, &wrong) && wrong.Field == "elem" {
			err = fmt.Errorf("%w: want a list of elements", describeTypeError(err))
		}
		if err != nil {
			return fmt.Errorf("%s %s %s: %w", s.Family, s.Table, s.Name, describeTypeError(err))
		}
		return nil
	case "element":
		return errors.New("elements outside their set: want the output of nft -j list ruleset")
	case "add", "replace", "create", "insert", "delete", "destroy", "list", "reset", "flush", "rename":
		return errors.New("a command: want the output of nft -j list ruleset")
	}
	return nil
}

func decoded[T any](body json.RawMessage) (object T, err error) {
	err = json.Unmarshal(body, &object)
	return object, err
}
