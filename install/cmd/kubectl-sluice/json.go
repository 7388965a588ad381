package main

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sluice-mesh/sluice/rules"
)

// jsonVersion is the version of the JSON output. It changes if a reader of the old format would
// misinterpret the new one.
const jsonVersion = 1

// jsonSchema describes every object that kubectl sluice itself prints with --output json.
// "go test -run TestSchema -update" generates it.
//
//go:embed schema.json
var jsonSchema string

// The kinds of objects.
const (
	clusterStatusKind = "ClusterStatus"
	errorKind         = "Error"
)

// An errorObject is an error on stderr. Each object is on a line of its own.
type errorObject struct {
	Version int    `json:"version"`
	Kind    string `json:"kind"`
	Error   string `json:"error"`
}

// report prints an error to stderr, each of its lines as a separate error.
func (o *options) report(err error) {
	for line := range strings.SplitSeq(err.Error(), "\n") {
		if o.asJSON {
			_ = writeJSON(o.streams.ErrOut, errorObject{jsonVersion, errorKind, line})
			continue
		}
		fmt.Fprintf(o.streams.ErrOut, "kubectl sluice: %s\n", rules.Printable(line))
	}
}

// writeJSON writes an object as one line of printable JSON.
func writeJSON(to io.Writer, object any) error {
	line, err := json.Marshal(object)
	if err != nil {
		return err
	}
	_, err = to.Write(append(rules.PrintableJSON(line), '\n'))
	return err
}

// asksForJSON reports whether a command line contains --output json, for kubectl sluice or for
// rules.
func asksForJSON(args []string) bool {
	for i, a := range args {
		switch a {
		case "-ojson", "-o=json", "--output=json":
			return true
		case "-o", "--output":
			if slices.Contains(args[i+1:min(i+2, len(args))], "json") {
				return true
			}
		}
	}
	return false
}

func newSchemaTopic() *cobra.Command {
	cmd := &cobra.Command{Use: "json-schema", Short: "the JSON Schema of JSON output"}
	cmd.SetHelpFunc(func(cmd *cobra.Command, _ []string) {
		fmt.Fprintln(cmd.OutOrStdout(), strings.TrimSpace(jsonSchema))
	})
	return cmd
}
