package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/sluice-mesh/sluice/compat/doctor"
	prove "github.com/sluice-mesh/sluice/compat/validation"
	"github.com/sluice-mesh/sluice/plugin/agent"
	"github.com/sluice-mesh/sluice/rules"
	"github.com/sluice-mesh/sluice/rules/diff"
)

// documents lists a document of every kind, with what the schema says about it.
func documents() map[document]string {
	return map[document]string{
		new(rulesetDocument):  "rules show: a ruleset",
		new(applied):          "rules apply: what was done",
		new(planned):          "rules apply --dry-run: what would be done",
		new(checked):          "rules check: what differs, and what rules of other owners do",
		new(explanation):      "rules explain: the way of packets through the rules",
		new(explainedPod):     "rules explain --pod: the decision of the CNI plugin about a pod",
		new(jsonDiff):         "rules diff: the packets that two rulesets treat differently",
		new(validated):        "rules validate: the connections that were tried",
		new(cleaned):          "rules cleanup: what was removed, or with dryRun would be",
		new(examined):         "rules doctor: what could keep redirection from working",
		new(statusDocument):   "rules status: the state of the node",
		new(tracedPacket):     "rules trace: a packet, one object a line",
		new(traceSummary):     "rules trace: the last line",
		new(build):            "rules version: the version of the program is \"release\"",
		new(errorDocument):    "an error, on stderr, one object a line",
		new(warningDocument):  "a warning, on stderr, one object a line",
		new(progressDocument): "what a command is waiting for, on stderr, one object a line",
	}
}

// enumerations lists the values of types that have a fixed set of them.
func enumerations() map[reflect.Type]*jsonschema.Schema {
	enum := func(values ...any) *jsonschema.Schema {
		return &jsonschema.Schema{Type: "string", Enum: values}
	}
	return map[reflect.Type]*jsonschema.Schema{
		reflect.TypeFor[rules.DifferenceKind](): enum(rules.Missing, rules.Extra, rules.Changed,
			rules.Reordered),
		reflect.TypeFor[diff.Verdict](): enum(diff.Equivalent, diff.Different,
			diff.Undecidable),
		reflect.TypeFor[doctor.Severity](): enum(doctor.OK, doctor.Note, doctor.Warning,
			doctor.Problem),
		reflect.TypeFor[doctor.Verdict](): enum(doctor.Works, doctor.Disturbed, doctor.Prevented),
		reflect.TypeFor[prove.Status]():   enum(prove.OK, prove.Failed, prove.NotChecked),
		reflect.TypeFor[prove.Outcome](): enum(prove.Works, prove.WorksInPart, prove.Fails,
			prove.CapturesNothing, prove.NotDecided),
		reflect.TypeFor[agent.TopicState](): enum(agent.TopicOK, agent.TopicProblem,
			agent.TopicUnknown, agent.TopicOff),
	}
}

// definitions are the types that the schema defines once, because several objects have them.
func definitions() map[string]reflect.Type {
	return map[string]reflect.Type{
		"ruleset":    reflect.TypeFor[jsonRuleset](),
		"table":      reflect.TypeFor[jsonTable](),
		"routing":    reflect.TypeFor[jsonRouting](),
		"fate":       reflect.TypeFor[jsonOutcome](),
		"step":       reflect.TypeFor[jsonStep](),
		"packet":     reflect.TypeFor[explained](),
		"side":       reflect.TypeFor[jsonSide](),
		"outcome":    reflect.TypeFor[jsonSideOutcome](),
		"difference": reflect.TypeFor[rules.Difference](),
		"validation": reflect.TypeFor[validated](),
	}
}

const schemaID = "https://github.com/sluice-mesh/sluice/raw/main/rules/cmd/rules/schema.json"

// generateSchema makes the schema of the types. Objects may have other fields if open is true.
func generateSchema(t *testing.T, open bool) *jsonschema.Schema {
	t.Helper()
	root := &jsonschema.Schema{
		Schema: "https://json-schema.org/draft/2020-12/schema", ID: schemaID,
		Title:       "Output of rules --output json",
		Description: "Fields may be added. The version changes if a reader of the earlier form would misunderstand the later one.",
		Defs:        map[string]*jsonschema.Schema{},
	}
	references := enumerations()
	for name, of := range definitions() {
		references[of] = &jsonschema.Schema{Ref: "#/$defs/" + name}
	}
	infer := func(of reflect.Type) *jsonschema.Schema {
		others := without(references, of)
		s, err := jsonschema.ForType(of, &jsonschema.ForOptions{TypeSchemas: others})
		if err != nil {
			t.Fatal(err)
		}
		loosen(s, open)
		return s
	}
	for name, of := range definitions() {
		root.Defs[name] = infer(of)
	}
	for d, description := range documents() {
		s := infer(reflect.TypeOf(d).Elem())
		s.Description = description
		s.Properties["version"] = constant(jsonVersion)
		s.Properties["kind"] = constant(d.kind())
		s.Required = append([]string{"version", "kind"}, s.Required...)
		s.PropertyOrder = append([]string{"version", "kind"}, s.PropertyOrder...)
		root.Defs[d.kind()] = s
		root.OneOf = append(root.OneOf, &jsonschema.Schema{Ref: "#/$defs/" + d.kind()})
	}
	slices.SortFunc(root.OneOf, func(a, b *jsonschema.Schema) int {
		return strings.Compare(a.Ref, b.Ref)
	})
	return root
}

func constant(value any) *jsonschema.Schema { return &jsonschema.Schema{Const: &value} }

// without returns the references without the one to a type itself.
func without(
	references map[reflect.Type]*jsonschema.Schema, but reflect.Type,
) map[reflect.Type]*jsonschema.Schema {
	others := map[reflect.Type]*jsonschema.Schema{}
	for of, s := range references {
		if of != but {
			others[of] = s
		}
	}
	return others
}

// loosen allows other fields if open is true. It takes null away, because the program prints no
// null.
func loosen(s *jsonschema.Schema, open bool) {
	if s == nil {
		return
	}
	if slices.Contains(s.Types, "null") {
		s.Types = slices.DeleteFunc(s.Types, func(name string) bool { return name == "null" })
		if len(s.Types) == 1 {
			s.Type = s.Types[0]
		}
		s.Types = nil
	}
	for _, property := range s.Properties {
		loosen(property, open)
	}
	loosen(s.Items, open)
	if s.Properties != nil && open {
		s.AdditionalProperties = nil
	}
}

func TestSchema(t *testing.T) {
	text, err := json.MarshalIndent(generateSchema(t, true), "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	text = append(text, '\n')
	if *update {
		if err := os.WriteFile("schema.json", text, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if string(text) != jsonSchema {
		t.Error("schema.json is not what the types say: go test -run TestSchema -update writes it")
	}
}

func TestSchemaRejectsOtherOutput(t *testing.T) {
	for _, text := range []string{
		`{}`,
		`{"version":1,"kind":"Nothing"}`,
		`{"version":2,"kind":"Error","error":"x"}`,
		`{"version":1,"kind":"Error"}`,
		`{"version":1,"kind":"Error","error":"x","more":1}`,
		`{"version":1,"kind":"Cleanup","namespace":"x","dryRun":true,"removed":null}`,
		`{"version":1,"kind":"Doctor","namespace":"x","kernel":"6","verdict":"fine","findings":[]}`,
	} {
		if err := validateOutput(strings.NewReader(text)); err == nil {
			t.Errorf("%s: no error", text)
		}
	}
	if err := validateOutput(
		strings.NewReader(`{"version":1,"kind":"Error","error":"x"}`)); err != nil {
		t.Error(err)
	}
}

// validateOutput returns an error if an object of a stream is not as the published schema says, or
// has a field of which that says nothing.
func validateOutput(stream io.Reader) error {
	schema := new(jsonschema.Schema)
	if err := json.Unmarshal([]byte(jsonSchema), schema); err != nil {
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

// closeObjects allows no field that the schema does not have.
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

// recorder keeps what a command writes, to validate it.
type recorder struct {
	io.Writer
	text bytes.Buffer
}

func (r *recorder) Write(p []byte) (int, error) {
	r.text.Write(p)
	return r.Writer.Write(p)
}

// runRecorded is run, and holds all JSON against the schema: one object on stdout, and any number
// on stderr. A script that a command fails in this way sees exit code 99.
func runRecorded(s *system, args []string) int {
	out, errs := &recorder{Writer: s.stdout}, &recorder{Writer: s.stderr}
	s.stdout, s.stderr = out, errs
	code := run(s, args)
	if !s.json || !strings.HasPrefix(strings.TrimSpace(out.text.String()+errs.text.String()), "{") {
		return code
	}
	err := validateOutput(strings.NewReader(out.text.String() + errs.text.String()))
	if !oneObject(out.text.Bytes()) {
		err = errors.Join(err, errors.New("more than one object on stdout"))
	}
	if err != nil {
		fmt.Fprintf(errs.Writer, "the output is not as the schema says: %v\n", err)
		return 99
	}
	return code
}

func oneObject(text []byte) bool { return len(bytes.TrimSpace(text)) == 0 || json.Valid(text) }
