package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/sluice-mesh/sluice/compat/doctor"
	validator "github.com/sluice-mesh/sluice/compat/validation"
	"github.com/sluice-mesh/sluice/plugin/agent"
	"github.com/sluice-mesh/sluice/rules"
	"github.com/sluice-mesh/sluice/rules/cmd/schematest"
	"github.com/sluice-mesh/sluice/rules/diff"
)

// documents lists a document of every kind, with its description in the schema.
func documents() map[document]string {
	return map[document]string{
		new(rulesetDocument):  "rules show: a ruleset",
		new(applyResult):      "rules apply: what was done",
		new(dryRunResult):     "rules apply --dry-run: what would be done",
		new(checkResult):      "rules check: what differs, and what rules of other owners do",
		new(explanation):      "rules explain: the path of packets through the rules",
		new(podExplanation):   "rules explain --pod: the decision of the CNI plugin about a pod",
		new(jsonDiff):         "rules diff: the packets that two rulesets treat differently",
		new(validationResult): "rules validate: the connections that were tried",
		new(cleanupResult):    "rules cleanup: what was removed, or with dryRun what would be removed",
		new(doctorResult):     "rules doctor: what could keep redirection from working",
		new(statusDocument):   "rules status: the state of the node",
		new(tracedPacket):     "rules trace: a packet, one object a line",
		new(tracedAnswer):     "rules trace: the answer to an earlier TracedPacket, the one with the same protocol, from and to as this object",
		new(traceSummary):     "rules trace: the last line",
		new(build):            "rules version: the build of the program; the field release is its version",
		new(errorDocument):    "an error, on stderr, one object a line",
		new(warningDocument):  "a warning, on stderr, one object a line",
		new(progressDocument): "what a command is waiting for, on stderr, one object a line",
	}
}

// enumerations lists the values of types with a fixed set of values.
func enumerations() map[reflect.Type]*jsonschema.Schema {
	return map[reflect.Type]*jsonschema.Schema{
		reflect.TypeFor[rules.DifferenceKind](): schematest.Enum(rules.Missing, rules.Extra, rules.Changed,
			rules.Reordered),
		reflect.TypeFor[diff.Verdict](): schematest.Enum(diff.Equivalent, diff.Different,
			diff.Undecidable),
		reflect.TypeFor[doctor.Severity](): schematest.Enum(doctor.OK, doctor.Note, doctor.Warning,
			doctor.Problem),
		reflect.TypeFor[doctor.Verdict](): schematest.Enum(doctor.Works, doctor.Degraded, doctor.Prevented),
		reflect.TypeFor[validator.Status](): schematest.Enum(
			validator.OK, validator.Failed, validator.NotChecked),
		reflect.TypeFor[validator.Outcome](): schematest.Enum(
			validator.Works, validator.WorksInPart, validator.Fails,
			validator.CapturesNothing, validator.NotDecided),
		reflect.TypeFor[agent.TopicState](): schematest.Enum(agent.TopicOK, agent.TopicProblem,
			agent.TopicUnknown, agent.TopicOff),
	}
}

// definitions are the types that other objects of the schema refer to by name.
func definitions() map[string]reflect.Type {
	return map[string]reflect.Type{
		"ruleset":     reflect.TypeFor[jsonRuleset](),
		"table":       reflect.TypeFor[jsonTable](),
		"routing":     reflect.TypeFor[jsonRouting](),
		"outcome":     reflect.TypeFor[jsonOutcome](),
		"step":        reflect.TypeFor[jsonStep](),
		"packet":      reflect.TypeFor[packetExplanation](),
		"side":        reflect.TypeFor[jsonSide](),
		"sideOutcome": reflect.TypeFor[jsonSideOutcome](),
		"difference":  reflect.TypeFor[rules.Difference](),
		"validation":  reflect.TypeFor[validationResult](),
	}
}

const schemaID = "https://github.com/sluice-mesh/sluice/raw/main/rules/cmd/rules/schema.json"

func TestSchema(t *testing.T) {
	objects := map[string]schematest.Object{}
	for d, description := range documents() {
		objects[d.kind()] = schematest.Object{
			Type: reflect.TypeOf(d).Elem(), Description: description,
		}
	}
	schematest.Schema{
		ID: schemaID, Title: "Output of rules --output json", Version: jsonVersion,
		Objects: objects, Definitions: definitions(), Enumerations: enumerations(),
	}.Check(t, "schema.json", jsonSchema, *update)
}

func TestSchemaRejectsInvalidOutput(t *testing.T) {
	for _, text := range []string{
		`{}`,
		`{"version":1,"kind":"Nothing"}`,
		`{"version":2,"kind":"Error","error":"x"}`,
		`{"version":1,"kind":"Error"}`,
		`{"version":1,"kind":"Error","error":"x","more":1}`,
		`{"version":1,"kind":"Cleanup","namespace":"x","dryRun":true,"removed":null}`,
		`{"version":1,"kind":"Doctor","namespace":"x","kernel":"6","verdict":"fine","findings":[]}`,
	} {
		if err := schematest.Validate(jsonSchema, strings.NewReader(text)); err == nil {
			t.Errorf("%s: no error, want one, because it does not match the schema", text)
		}
	}
	if err := schematest.Validate(jsonSchema,
		strings.NewReader(`{"version":1,"kind":"Error","error":"x"}`)); err != nil {
		t.Error(err)
	}
}

// recorder keeps the output of a command for validation.
type recorder struct {
	io.Writer
	text bytes.Buffer
}

func (r *recorder) Write(p []byte) (int, error) {
	r.text.Write(p)
	return r.Writer.Write(p)
}

// runRecorded wraps run and validates all JSON output: at most one object on stdout, because no
// script runs rules trace, and any number on stderr. A violation makes the command exit with code
// 99.
func runRecorded(s *system, args []string) int {
	out, errs := &recorder{Writer: s.stdout}, &recorder{Writer: s.stderr}
	s.stdout, s.stderr = out, errs
	code := run(s, args)
	if !s.json || !strings.HasPrefix(strings.TrimSpace(out.text.String()+errs.text.String()), "{") {
		return code
	}
	err := schematest.Validate(jsonSchema, strings.NewReader(out.text.String()+errs.text.String()))
	if !isAtMostOneObject(out.text.Bytes()) {
		err = errors.Join(err, errors.New("more than one object on stdout"))
	}
	if err != nil {
		fmt.Fprintf(errs.Writer, "the output does not match the schema: %v\n", err)
		return 99
	}
	return code
}

// isAtMostOneObject reports whether the text is empty or one JSON value.
func isAtMostOneObject(text []byte) bool {
	return len(bytes.TrimSpace(text)) == 0 || json.Valid(text)
}
