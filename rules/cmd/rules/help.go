package main

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

// sectionTitles are the headings of help.
var sectionTitles = [...]string{
	sectionProxy:        "The proxy",
	sectionInbound:      "Inbound",
	sectionTProxy:       "Inbound",
	sectionOutbound:     "Outbound",
	sectionDNS:          "DNS",
	sectionPod:          "The pod",
	sectionMode:         "Ambient mode",
	sectionAmbient:      "Ambient mode",
	sectionSluice:       "Beyond Istio",
	sectionNamespace:    "The network namespace",
	sectionAgent:        "The node agent",
	sectionNode:         "The node agent",
	sectionRunDir:       "The node agent",
	sectionBackend:      "The backend",
	sectionDryRun:       "What to do",
	sectionAction:       "What to do",
	sectionProbe:        "What to do",
	sectionOutput:       "Output",
	sectionIgnored:      titleIgnored,
	sectionShow:         "What to show",
	sectionLive:         "The live rules",
	sectionExplain:      "What to explain",
	sectionDiff:         "What to compare",
	sectionTrace:        "What to trace",
	sectionBudget:       "Limits of time and memory",
	sectionDoctorBudget: "Limits of time and memory",
	sectionCleanup:      "What to do",
}

// printHelp prints the description of a command and its subcommands.
func printHelp(cmd *cobra.Command, _ []string) {
	out := cmd.OutOrStdout()
	fmt.Fprintf(out, "%s\n", strings.TrimSpace(cmd.Long))
	if cmd.HasParent() {
		fmt.Fprintf(out, "\nUsage:\n  %s %s\n", cmd.Parent().CommandPath(), cmd.Use)
	} else {
		fmt.Fprintf(out, "\nUsage:\n  %s COMMAND [FLAG]...\n", cmd.Name())
		printCommands(out, "Commands (rules COMMAND --help describes one)", cmd, true)
		printCommands(out, "Topics (rules help TOPIC)", cmd, false)
		fmt.Fprint(out, "\n--help-all describes every flag of a command. "+
			"Without a command, it describes all commands.\n")
		fmt.Fprint(out, "\nExit codes: 0 success, 1 a difference or a problem, 2 bad input, "+
			"3 an error of the kernel or the system, 126 validation failed.\n")
	}
	printExamples(out, cmd)
}

// printExamples prints the examples of a command.
func printExamples(out io.Writer, cmd *cobra.Command) {
	if cmd.Example != "" {
		fmt.Fprintf(out, "\nExamples:\n%s", cmd.Example)
	}
}

// printAllHelp prints the help of the program, of each command with every flag, and of each topic.
func printAllHelp(root *cobra.Command) error {
	if err := root.Help(); err != nil {
		return err
	}
	out := root.OutOrStdout()
	for _, c := range root.Commands() {
		if c.Hidden {
			continue
		}
		fmt.Fprintf(out, "\n%s\n\n", strings.ToUpper("rules "+c.Name()))
		var err error
		if c.Runnable() {
			err = c.RunE(c, []string{"--" + helpAllFlag})
		} else {
			err = c.Help()
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// commonFlags are the flags of the redirection that short help lists.
var commonFlags = []string{
	"istio-inbound-ports", "istio-local-exclude-ports", "istio-service-cidr",
	"istio-service-exclude-cidr", "istio-local-outbound-ports-exclude",
	"istio-inbound-interception-mode", "proxy-uid", "redirect-dns", "dual-stack", "pod-ip",
}

// isCommon reports whether short help lists the parameter.
func (p *parameter) isCommon() bool {
	switch p.section {
	case sectionNamespace:
		return len(p.variables) == 0
	case sectionMode, sectionAgent, sectionNode, sectionBackend, sectionShow, sectionLive,
		sectionExplain, sectionDiff, sectionTrace, sectionCleanup, sectionDryRun, sectionOutput:
		return true
	}
	return slices.Contains(commonFlags, p.flag)
}

// shortColumn is the column of the descriptions in short help.
const shortColumn = 50

// printShortHelp prints the first paragraph of a command's description, its examples, and its most
// used flags.
func (in *inputs) printShortHelp(cmd *cobra.Command) {
	out := cmd.OutOrStdout()
	summary, _, _ := strings.Cut(strings.TrimSpace(cmd.Long), "\n\n")
	fmt.Fprintf(out, "%s\n\nUsage:\n  %s %s\n", summary, cmd.Parent().CommandPath(), cmd.Use)
	printExamples(out, cmd)
	fmt.Fprint(out, "\nFlags:\n")
	for _, p := range in.inSections() {
		if !p.isCommon() {
			continue
		}
		synopsis := p.synopsis()
		// Two blanks precede the synopsis, and at least two follow it.
		if len(synopsis) > shortColumn-4 {
			fmt.Fprintf(out, "  %s\n", synopsis)
			synopsis = ""
		}
		for _, line := range wrap(p.help, helpWidth-shortColumn) {
			fmt.Fprintf(out, "  %-*s%s\n", shortColumn-2, synopsis, line)
			synopsis = ""
		}
	}
	fmt.Fprintf(out, "  %-*s%s\n", shortColumn-2, "--help-all",
		"print the full description, with every flag and variable")
}

// printCommands prints the commands, or if runnable is false the topics, under a title.
func printCommands(out io.Writer, title string, parent *cobra.Command, runnable bool) {
	fmt.Fprintf(out, "\n%s:\n", title)
	for _, c := range parent.Commands() {
		if c.Runnable() == runnable && !c.Hidden {
			fmt.Fprintf(out, "  %-12s %s\n", c.Name(), c.Short)
		}
	}
}

// titleIgnored is the heading of the parameters that have no effect.
const titleIgnored = "Accepted without effect"

// printFlags prints the parameters by section.
func (in *inputs) printFlags(out io.Writer) {
	title := ""
	for _, p := range in.inSections() {
		if next := sectionTitles[p.section]; next != title {
			title = next
			fmt.Fprintf(out, "\n%s:\n", title)
		}
		writeEntry(out, p.synopsis(), p.description())
	}
	if len(in.ignoredSections) == 0 {
		return
	}
	var names []string
	for _, p := range allParameters() {
		if slices.Contains(in.ignoredSections, p.section) {
			names = append(names, p.names())
		}
	}
	fmt.Fprintf(out, "\n%s (flags of apply):\n", titleIgnored)
	for _, line := range wrap(strings.Join(names, " "), helpWidth-2) {
		fmt.Fprintf(out, "  %s\n", line)
	}
}

// inSections returns the parameters in the sections of the command, ordered by section. It omits
// the parameters in ignoredSections.
func (in *inputs) inSections() []parameter {
	return slices.SortedStableFunc(func(yield func(parameter) bool) {
		for _, p := range in.parameters {
			if slices.Contains(in.sections, p.section) && !yield(p) {
				return
			}
		}
	}, func(a, b parameter) int { return cmp.Compare(a.section, b.section) })
}

// synopsis returns the parameter as it is written on the command line, with a placeholder: "-p,
// --envoy-port PORT". For a parameter without a flag it returns the assignment of the variable.
func (p *parameter) synopsis() string {
	if p.flag == "" {
		return p.variables[0] + "=" + p.value
	}
	text := p.names()
	if p.value != "" {
		text += " " + p.value
	}
	return text
}

// names returns the flag's letter, if it has one, and its name: "-p, --envoy-port".
func (p *parameter) names() string {
	if p.short == "" {
		return "--" + p.flag
	}
	return "-" + p.short + ", --" + p.flag
}

// description returns the meaning of the parameter, its default, and its environment variables.
func (p *parameter) description() string {
	var notes []string
	if p.repeat || p.list && p.flag != "" {
		notes = append(notes, "repeatable")
	}
	if p.fallback != "" {
		notes = append(notes, "default "+p.fallback)
	}
	if p.flag != "" && len(p.variables) > 0 {
		notes = append(notes, "$"+strings.Join(p.variables, ", $"))
	}
	if len(notes) == 0 {
		return p.help
	}
	return p.help + " [" + strings.Join(notes, "; ") + "]"
}

// writeEntry writes a name and, indented on the following lines, its description.
func writeEntry(out io.Writer, name, description string) {
	fmt.Fprintf(out, "  %s\n", name)
	for _, line := range wrap(description, helpWidth-8) {
		fmt.Fprintf(out, "        %s\n", line)
	}
}

// helpWidth is the width of help texts.
const helpWidth = 120

// wrap breaks the text into lines of at most the width.
func wrap(text string, width int) []string {
	var lines []string
	line := ""
	for word := range strings.FieldsSeq(text) {
		switch {
		case line == "":
			line = word
		case len(line)+1+len(word) > width:
			lines = append(lines, line)
			line = word
		default:
			line += " " + word
		}
	}
	return append(lines, line)
}
