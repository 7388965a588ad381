package main

import (
	"slices"
	"strings"
	"testing"
)

// The names in commands, by which calledCommand finds a command, are the command's name and
// aliases.
func TestCommandsAreFoundByTheirNames(t *testing.T) {
	s, _ := testSystem()
	for _, c := range commands {
		cmd := c.make(s)
		if names := append([]string{cmd.Name()}, cmd.Aliases...); !slices.Equal(names, c.names) {
			t.Errorf("the command with the names %q is found by %q, want the same names", names,
				c.names)
		}
		for _, name := range c.names {
			if found := calledCommand(s, []string{name, "--help"}); found == nil ||
				found.Name() != cmd.Name() {
				t.Errorf("%s: found %v, want %s", name, found, cmd.Name())
			}
		}
	}
	for _, args := range [][]string{
		nil, {"help"}, {"--help", "apply"}, {"Apply"}, {"app"}, {"environment"},
	} {
		if found := calledCommand(s, args); found != nil {
			t.Errorf("%q: found %s, want no command", args, found.Name())
		}
	}
}

func TestCommandsHaveAHelpPage(t *testing.T) {
	s, _ := testSystem()
	for _, c := range commands {
		if cmd := c.make(s); cmd.Long == "" || strings.Contains(cmd.Long, "$PACKET") {
			t.Errorf("%s: the description is %q, want the page in the directory help", cmd.Name(),
				cmd.Long)
		}
	}
}
