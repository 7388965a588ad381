package main

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

func newCompletionCommand(s *system) *cobra.Command {
	shells := []string{"bash", "zsh", "fish"}
	in := &inputs{check: func(_ *parameters, args []string) []error {
		if len(args) == 1 && slices.Contains(shells, args[0]) {
			return nil
		}
		name := ""
		if len(args) == 1 {
			name = args[0]
		}
		return []error{fmt.Errorf("%q has no completion script: want bash, zsh or fish", name)}
	}}
	var cmd *cobra.Command
	cmd = s.command("completion bash|zsh|fish", "print the completion script of a shell", in,
		func(_ *parameters, args []string) error {
			root := cmd.Root()
			switch args[0] {
			case "zsh":
				return systemError(root.GenZshCompletion(s.stdout))
			case "fish":
				return systemError(root.GenFishCompletion(s.stdout, true))
			}
			return systemError(root.GenBashCompletionV2(s.stdout, true))
		})
	cmd.ValidArgs = shells
	return cmd
}

// complete returns the possible completions of word, the last word of a command line. words are the
// words before the last one.
func (in *inputs) complete(
	cmd *cobra.Command, words []string, word string,
) ([]string, cobra.ShellCompDirective) {
	if len(cmd.ValidArgs) > 0 && len(words) == 0 {
		return cmd.ValidArgs, cobra.ShellCompDirectiveNoFileComp
	}
	in.load()
	if flag, value, found := strings.Cut(word, "="); found && strings.HasPrefix(flag, "--") {
		values, directive := in.completeValue(flag, value)
		for i := range values {
			values[i] = flag + "=" + values[i]
		}
		return values, directive
	}
	if len(words) > 0 {
		values, directive := in.completeValue(words[len(words)-1], word)
		if directive != unknownFlag {
			return values, directive
		}
	}
	if !strings.HasPrefix(word, "-") {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var flags []string
	for _, p := range in.inSections() {
		if p.flag != "" && strings.HasPrefix("--"+p.flag, word) {
			flags = append(flags, "--"+p.flag+"\t"+p.help)
		}
	}
	for _, f := range []struct{ name, help string }{
		{"--help", "describe the command"}, {"--help-all", "describe every flag"},
	} {
		if strings.HasPrefix(f.name, word) {
			flags = append(flags, f.name+"\t"+f.help)
		}
	}
	return flags, cobra.ShellCompDirectiveNoFileComp
}

// unknownFlag is the result of completeValue for a word that is not a flag with a value.
const unknownFlag cobra.ShellCompDirective = -1

// completeValue returns the values of a flag that begin with a text.
func (in *inputs) completeValue(flag, text string) ([]string, cobra.ShellCompDirective) {
	i := slices.IndexFunc(in.parameters, func(p parameter) bool {
		isFlag := p.flag != "" && flag == "--"+p.flag || p.short != "" && flag == "-"+p.short
		return isFlag && p.value != ""
	})
	if i < 0 {
		return nil, unknownFlag
	}
	p := &in.parameters[i]
	isPath := p.value == "PATH" || p.value == "FILE"
	if isPath || p.value == "PATH|NAME" && strings.Contains(text, "/") {
		return nil, cobra.ShellCompDirectiveDefault
	}
	values := slices.DeleteFunc(p.values(), func(v string) bool {
		return !strings.HasPrefix(v, text)
	})
	return values, cobra.ShellCompDirectiveNoFileComp
}

// values returns the fixed values of a parameter. For a network namespace it returns the names of
// ip-netns(8).
func (p *parameter) values() []string {
	if p.value == "PATH|NAME" {
		entries, _ := os.ReadDir(namedNamespaces) // after an error, no name is offered
		var names []string
		for _, e := range entries {
			names = append(names, e.Name())
		}
		return names
	}
	// A placeholder in lower case consists of the values.
	if p.words == nil && strings.Contains(p.value, "|") && strings.ToLower(p.value) == p.value {
		return strings.Split(p.value, "|")
	}
	return slices.Clone(p.words)
}
