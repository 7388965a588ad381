package main

import (
	"embed"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sluice-mesh/sluice/rules"
)

// jsonSchema describes every object that --output json prints. TestSchema generates it with the
// flag -update.
//
//go:embed schema.json
var jsonSchema string

// helpPages contains the pages of commands and topics. After the line "Examples:" follow the
// examples of a command.
//
//go:embed help/*.txt
var helpPages embed.FS

// helpPage returns the page of a command or a topic. It is empty for the command help.
func helpPage(name string) string {
	page, _ := helpPages.ReadFile("help/" + name + ".txt")
	return string(page)
}

// topics returns the pages of `rules help` that do not belong to a command.
func topics() []*cobra.Command {
	return []*cobra.Command{
		topic("deviations", "deviations from the rules of istio-init", deviationsHelp),
		topic("environment", "the environment variables", environmentHelp),
		topic("exit-codes", "the exit codes", func() string { return helpPage("exit-codes") }),
		topic("json", "JSON output", func() string { return helpPage("json") }),
		topic("json-schema", "the JSON Schema of JSON output", func() string { return jsonSchema }),
	}
}

// topic returns a command that has only a help text.
func topic(name, short string, text func() string) *cobra.Command {
	cmd := &cobra.Command{Use: name, Short: short}
	cmd.SetHelpFunc(func(cmd *cobra.Command, _ []string) { fmt.Fprint(cmd.OutOrStdout(), text()) })
	return cmd
}

// environmentHelp returns the help topic "environment".
func environmentHelp() string {
	b := new(strings.Builder)
	for _, p := range allParameters() {
		for _, variable := range p.variables {
			meaning := "the same as --" + p.flag
			if p.flag == "" {
				meaning = p.description()
			}
			writeEntry(b, variable, meaning)
		}
	}
	return strings.Replace(helpPage("environment"), "$VARIABLES\n", b.String(), 1)
}

// deviationsHelp returns the help topic "deviations".
func deviationsHelp() string {
	b := new(strings.Builder)
	b.WriteString(helpPage("deviations"))
	for _, d := range rules.Deviations {
		b.WriteByte('\n')
		writeEntry(b, string(d.ID), d.Reason)
	}
	return b.String()
}
