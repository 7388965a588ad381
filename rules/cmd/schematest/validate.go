package schematest

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/google/jsonschema-go/jsonschema"
)

// Validate returns an error if an object of a stream does not match a published schema, or has a
// field that the schema does not define.
func Validate(published string, stream io.Reader) error {
	schema := new(jsonschema.Schema)
	if err := json.Unmarshal([]byte(published), schema); err != nil {
		return err
	}
	for _, s := range schema.Defs {
		closeObjects(s)
	}
	resolved, err := schema.Resolve(nil)
	if err != nil {
		return err
	}
	decoder := json.NewDecoder(stream)
	for {
		var object any
		if err := decoder.Decode(&object); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		if err := resolved.Validate(object); err != nil {
			return fmt.Errorf("%w\n%v", err, object)
		}
	}
}

// closeObjects disallows fields that the schema does not define.
func closeObjects(s *jsonschema.Schema) {
	if s == nil {
		return
	}
	if s.Properties != nil {
		s.AdditionalProperties = &jsonschema.Schema{Not: &jsonschema.Schema{}}
	}
	for _, property := range s.Properties {
		closeObjects(property)
	}
	closeObjects(s.Items)
}
