// Package schematest generates the published JSON Schema of the JSON output of a command from the
// types of its objects, and validates output against it.
package schematest

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"
)

// A Schema describes the objects that a command prints. Objects may have additional fields.
type Schema struct {
	ID, Title string
	// Version is the value of the field "version" of every object.
	Version int
	// Objects maps the values of the field "kind" to the objects.
	Objects map[string]Object
	// Definitions are types that the schema defines once, because several objects use them.
	Definitions map[string]reflect.Type
	// Enumerations are the allowed values of types with a fixed set of values.
	Enumerations map[reflect.Type]*jsonschema.Schema
}

// An Object is a struct. Its fields "version" and "kind" may be missing.
type Object struct {
	Type        reflect.Type
	Description string
}

// Enum returns the schema of a string type with the given values.
func Enum[T ~string](values ...T) *jsonschema.Schema {
	s := &jsonschema.Schema{Type: "string"}
	for _, v := range values {
		s.Enum = append(s.Enum, v)
	}
	return s
}

// Check compares the schema with the published text of the file, or writes the file if update is
// true.
func (s Schema) Check(tb testing.TB, file, published string, update bool) {
	tb.Helper()
	generated, err := s.generate()
	if err != nil {
		tb.Fatal(err)
	}
	text, err := json.MarshalIndent(generated, "", "  ")
	if err != nil {
		tb.Fatal(err)
	}
	text = append(text, '\n')
	switch {
	case update:
		if err := os.WriteFile(file, text, 0o644); err != nil {
			tb.Fatal(err)
		}
	case string(text) != published:
		tb.Errorf("%s does not match the types: run go test -run %s -update", file, tb.Name())
	}
}

// generate returns the schema of all objects.
func (s Schema) generate() (*jsonschema.Schema, error) {
	root := &jsonschema.Schema{
		Schema: "https://json-schema.org/draft/2020-12/schema", ID: s.ID, Title: s.Title,
		Description: "Fields may be added. The version changes if a reader of the earlier form would " +
			"misunderstand the later one.",
		Defs: map[string]*jsonschema.Schema{},
	}
	var err error
	for name, typ := range s.Definitions {
		if root.Defs[name], err = s.infer(typ); err != nil {
			return nil, err
		}
	}
	common := []string{"version", "kind"}
	withoutCommon := func(names []string) []string {
		return slices.DeleteFunc(names, func(n string) bool { return slices.Contains(common, n) })
	}
	for kind, object := range s.Objects {
		o, err := s.infer(object.Type)
		if err != nil {
			return nil, err
		}
		o.Description = object.Description
		o.Properties["version"], o.Properties["kind"] = constant(s.Version), constant(kind)
		o.Required = slices.Concat(common, withoutCommon(o.Required))
		o.PropertyOrder = slices.Concat(common, withoutCommon(o.PropertyOrder))
		root.Defs[kind] = o
		root.OneOf = append(root.OneOf, &jsonschema.Schema{Ref: "#/$defs/" + kind})
	}
	slices.SortFunc(root.OneOf, func(a, b *jsonschema.Schema) int {
		return strings.Compare(a.Ref, b.Ref)
	})
	return root, nil
}

// infer returns the schema of a type, with references to the definitions of other types.
func (s Schema) infer(typ reflect.Type) (*jsonschema.Schema, error) {
	known := map[reflect.Type]*jsonschema.Schema{}
	maps.Copy(known, s.Enumerations)
	for name, other := range s.Definitions {
		if other != typ {
			known[other] = &jsonschema.Schema{Ref: "#/$defs/" + name}
		}
	}
	inferred, err := jsonschema.ForType(typ, &jsonschema.ForOptions{TypeSchemas: known})
	if err != nil {
		return nil, err
	}
	walk(inferred, loosen)
	return inferred, nil
}

// constant returns the schema that allows only the value.
func constant(value any) *jsonschema.Schema { return &jsonschema.Schema{Const: &value} }

// walk calls fn for a schema and the schemas of its properties and items.
func walk(s *jsonschema.Schema, fn func(*jsonschema.Schema)) {
	if s == nil {
		return
	}
	fn(s)
	for _, property := range s.Properties {
		walk(property, fn)
	}
	walk(s.Items, fn)
}

// loosen allows additional fields. It disallows null, because the programs never print it.
func loosen(s *jsonschema.Schema) {
	if slices.Contains(s.Types, "null") {
		s.Types = slices.DeleteFunc(s.Types, func(name string) bool { return name == "null" })
		switch len(s.Types) {
		case 0: // a reference
			s.Types = nil
		case 1:
			s.Type, s.Types = s.Types[0], nil
		}
	}
	if s.Properties != nil {
		s.AdditionalProperties = nil
	}
}

// Validate returns an error if an object of a stream does not match a published schema, or has a
// field that the schema does not define.
func Validate(published string, stream io.Reader) error {
	schema := new(jsonschema.Schema)
	if err := json.Unmarshal([]byte(published), schema); err != nil {
		return err
	}
	for _, s := range schema.Defs {
		walk(s, closeObjects)
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
	if s.Properties != nil {
		s.AdditionalProperties = &jsonschema.Schema{Not: &jsonschema.Schema{}}
	}
}
