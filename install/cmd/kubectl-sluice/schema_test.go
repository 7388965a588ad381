package main

import (
	"flag"
	"fmt"
	"io"
	"reflect"
	"strings"
	"testing"

	"github.com/sluice-mesh/sluice/rules/cmd/schematest"
)

var update = flag.Bool("update", false, "write schema.json")

func TestSchema(t *testing.T) {
	schematest.Schema{
		ID:      "https://github.com/sluice-mesh/sluice/raw/main/install/cmd/kubectl-sluice/schema.json",
		Title:   "Output of kubectl sluice --output json, except for the objects of rules",
		Version: jsonVersion,
		Objects: map[string]schematest.Object{
			clusterStatusKind: {
				Type:        reflect.TypeFor[clusterStatus](),
				Description: "kubectl sluice status: the state of all nodes",
			},
			errorKind: {
				Type:        reflect.TypeFor[errorObject](),
				Description: "an error, on stderr, one object per line",
			},
		},
		Definitions: map[string]reflect.Type{"node": reflect.TypeFor[nodeStatus]()},
	}.Check(t, "schema.json", jsonSchema, *update)
}

func TestHelpPrintsTheSchema(t *testing.T) {
	code, stdout, stderr := newFakeCluster().sluice(t.Context(), t, nil, "help", "json-schema")
	if code != 0 || stdout != jsonSchema || stderr != "" {
		t.Errorf("exit code %d, want 0 and the schema: %s%s", code, stdout, stderr)
	}
}

func TestOutputFollowsTheSchema(t *testing.T) {
	for _, c := range []struct {
		name   string
		status string // of the node agent of node a
		args   []string
		code   int
		stdout bool   // an object is expected on stdout
		error  string // part of stderr
	}{
		{
			"a ready node, and one without an agent",
			`{"version":1,"kind":"Status","node":"a","agentVersion":"v1","time":"2026-01-02T03:04:05Z","ready":true,"topics":[],` +
				`"pods":{"redirected":3},"drifts":{"missing":2},"conflictingWriters":{"cilium":1}}`,
			[]string{"status", "-o", "json"},
			1, true, "",
		},
		{
			"a node that is not ready",
			`{"version":1,"kind":"Status","node":"a","agentVersion":"v1","time":"2026-01-02T03:04:05Z","ready":false,` +
				`"topics":[{"name":"chain","state":"problem","facts":["no configuration"]}]}`,
			[]string{"status", "--output=json"},
			1, true, "",
		},
		{"an agent with an empty answer", "", []string{"status", "-o", "json"}, 1, true, ""},
		{
			"an invalid value of a flag of status", "",
			[]string{"status", "-o", "json", "--interval", "1ms"},
			exitBadInput, false,
			`"--interval: 1ms is less than 1s"`,
		},
		{
			"an unknown flag", "",
			[]string{"status", "-o=json", "--no"},
			exitBadInput, false, `"unknown flag: --no"`,
		},
		{
			"an unknown pod", "",
			[]string{"check", "shop/nobody", "--output", "json"},
			exitBadInput, false, "NotFound",
		},
		{
			"a node without an agent", "",
			[]string{"check", "shop/far", "-ojson"},
			exitFailed, false, "no node agent runs on node b",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := newFakeCluster()
			f.command = func(_ string, _ []string, _ io.Reader, out, _ io.Writer) int {
				fmt.Fprintln(out, c.status)
				return 0
			}
			code, stdout, stderr := f.sluice(t.Context(), t, nil, c.args...)
			if code != c.code || (stdout != "") != c.stdout || !strings.Contains(stderr, c.error) ||
				(stderr != "") != (c.error != "") {
				t.Errorf("exit code %d; want %d, output on stdout: %t, and the error %q\n%s%s", code, c.code, c.stdout,
					c.error, stdout, stderr)
			}
			if err := schematest.Validate(jsonSchema, strings.NewReader(stdout+stderr)); err != nil {
				t.Error(err)
			}
		})
	}
}
