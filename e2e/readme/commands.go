package readme

import "strings"

// Commands returns the commands in the code blocks of a section of a Markdown text, in order. The
// heading of the section is "## ", followed by section. A backslash continues a command on the next
// line. Empty lines and comment lines are omitted.
func Commands(text, section string) []string {
	var commands []string
	var command string
	inSection, inBlock := false, false
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		if strings.HasPrefix(line, "```") {
			inBlock = !inBlock
			continue
		}
		if !inBlock {
			if heading, isHeading := strings.CutPrefix(line, "## "); isHeading {
				inSection = heading == section
			}
			continue
		}
		command += line
		if strings.HasSuffix(line, `\`) {
			command += "\n"
			continue
		}
		if inSection && strings.TrimSpace(command) != "" && !strings.HasPrefix(command, "#") {
			commands = append(commands, command)
		}
		command = ""
	}
	return commands
}
