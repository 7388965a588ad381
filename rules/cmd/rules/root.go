package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// commands is the table of the subcommands, in the order of the help.
var commands = []struct {
	names []string
	make  func(*system) *cobra.Command
}{
	{[]string{"apply", "istio-iptables"}, newApplyCommand},
	{[]string{"show"}, newShowCommand},
	{[]string{"check"}, newCheckCommand},
	{[]string{"explain"}, newExplainCommand},
	{[]string{"trace"}, newLiveTraceCommand},
	{[]string{"diff"}, newDiffCommand},
	{[]string{"validate"}, newValidateCommand},
	{[]string{"cleanup"}, newCleanupCommand},
	{[]string{"doctor"}, newDoctorCommand},
	{[]string{"status"}, newStatusCommand},
	{[]string{"completion"}, newCompletionCommand},
	{[]string{"version"}, newVersionCommand},
}

// run executes the command line and returns the exit code.
func run(s *system, args []string) int {
	s.json = wantsJSON(args)
	err := execute(s, args)
	s.report(err)
	return exitCode(err)
}

// execute runs a named subcommand directly, and leaves everything else, such as help, to cobra.
// Creating all subcommands, and having cobra find one, would take as long as parsing the flags. The
// subcommand completion needs all of them, because its script completes their names.
func execute(s *system, args []string) error {
	if len(args) > 0 && args[0] == "--version" {
		args = append([]string{"version"}, args[1:]...)
	}
	help := &helpWriter{out: s.stdout}
	root := newRootCommand(s)
	root.SetOut(help)
	if cmd := calledCommand(s, args); cmd != nil && cmd.Name() != "completion" {
		root.AddCommand(cmd)
		return cmp.Or(cmd.RunE(cmd, args[1:]), help.err)
	}
	for _, c := range commands {
		root.AddCommand(c.make(s))
	}
	root.AddCommand(topics()...)
	root.InitDefaultHelpCmd()
	if err := unknownCommand(root, args); err != nil {
		return err
	}
	root.SetArgs(args)
	return cmp.Or(root.Execute(), help.err)
}

// A helpWriter writes help. It keeps the first error, which the functions that print help ignore.
type helpWriter struct {
	out io.Writer
	err error
}

// Write implements [io.Writer].
func (w *helpWriter) Write(text []byte) (int, error) {
	n, err := w.out.Write(text)
	w.err = cmp.Or(w.err, systemError(err))
	return n, err
}

// unknownCommand returns an error if the arguments begin with a word that is not a command.
func unknownCommand(root *cobra.Command, args []string) error {
	if len(args) == 0 || strings.HasPrefix(args[0], "-") ||
		strings.HasPrefix(args[0], cobra.ShellCompRequestCmd) {
		return nil
	}
	if found, _, err := root.Find(args[:1]); err == nil && found != root {
		return nil
	}
	return fmt.Errorf("unknown command %q%s; rules help lists the commands", args[0],
		didYouMean(args[0], "", subcommands(root)))
}

// wantsJSON reports whether the arguments request JSON. It runs before the arguments are parsed,
// because parse errors are printed in the same format.
func wantsJSON(args []string) bool {
	for i, a := range args {
		switch a {
		case "--output=json", "-ojson", "-o=json", "--format=json":
			return true
		case "--output", "-o", "--format":
			if i+1 < len(args) && args[i+1] == outputJSON {
				return true
			}
		}
	}
	return false
}

// calledCommand returns the subcommand that the arguments begin with, or nil.
func calledCommand(s *system, args []string) *cobra.Command {
	for _, c := range commands {
		if len(args) > 0 && slices.Contains(c.names, args[0]) {
			return c.make(s)
		}
	}
	return nil
}

// newRootCommand returns the root command without subcommands.
func newRootCommand(s *system) *cobra.Command {
	cobra.EnableCommandSorting = false // help lists the commands in the order of the table
	root := &cobra.Command{
		Use:               "rules",
		Short:             "Program a mesh pod's traffic redirection",
		Long:              helpPage("rules"),
		Args:              cobra.ArbitraryArgs,
		SilenceErrors:     true,
		SilenceUsage:      true,
		CompletionOptions: cobra.CompletionOptions{DisableDefaultCmd: true},
	}
	helpAll := false
	root.RunE = func(cmd *cobra.Command, _ []string) error {
		if helpAll {
			return printAllHelp(cmd)
		}
		return cmd.Help()
	}
	root.Flags().BoolVar(&helpAll, helpAllFlag, false, "")
	root.SetErr(s.stderr)
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error {
		return fmt.Errorf("%w; rules help lists the commands", err)
	})
	root.SetHelpFunc(printHelp)
	root.SetHelpCommand(newHelpCommand(root))
	return root
}

// newHelpCommand returns the command help. It replaces cobra's help command, which succeeds for an
// unknown topic.
func newHelpCommand(root *cobra.Command) *cobra.Command {
	return &cobra.Command{
		Use:    "help [COMMAND|TOPIC]",
		Hidden: true,
		RunE: func(_ *cobra.Command, args []string) error {
			found, rest, err := root.Find(args)
			if err != nil || len(rest) > 0 {
				return fmt.Errorf("no help on %q%s; rules help lists the commands and topics",
					strings.Join(args, " "),
					didYouMean(strings.Join(args, " "), "", subcommands(root)))
			}
			return found.Help()
		},
		ValidArgsFunction: func(
			*cobra.Command, []string, string,
		) ([]string, cobra.ShellCompDirective) {
			return subcommands(root), cobra.ShellCompDirectiveNoFileComp
		},
	}
}

// subcommands returns the names of the commands and topics.
func subcommands(root *cobra.Command) []string {
	var names []string
	for _, c := range root.Commands() {
		if !c.Hidden {
			names = append(names, c.Name())
		}
	}
	return names
}

// command returns a subcommand with its parameters, its help page and its action.
func (s *system) command(
	use, short string, in *inputs, action func(p *parameters, args []string) error,
) *cobra.Command {
	cmd := &cobra.Command{
		Use: use, Short: short,
		DisableFlagParsing: true, // parseFlags declares and parses the flags when the command runs
	}
	cmd.Long, cmd.Example, _ = strings.Cut(helpPage(cmd.Name()), "\n\nExamples:\n")
	cmd.SetHelpFunc(func(cmd *cobra.Command, args []string) {
		if in.load(); in.helpAll {
			printHelp(cmd, args)
			in.printFlags(cmd.OutOrStdout())
			return
		}
		in.printShortHelp(cmd)
	})
	cmd.ValidArgsFunction = in.complete
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		in.load()
		args, err := in.parseFlags(cmd.CommandPath(), args)
		if errors.Is(err, pflag.ErrHelp) {
			return cmd.Help()
		}
		if err != nil {
			return err
		}
		p, err := in.parse(s, args)
		if err != nil {
			return err
		}
		switch {
		case p.pod != (podName{}):
			err = s.locate(p)
		case p.node:
			err = s.locateNode(p)
		}
		if err != nil {
			return err
		}
		return action(p, args)
	}
	return cmd
}
