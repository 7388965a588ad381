package compat

import "strings"

// ClearSourceMarkCommand returns the command that sets the sysctl src_valid_mark of the named
// interfaces to 0. The names may include "all". Source validation of an interface uses the mark if
// the sysctl is 1 for the interface or for "all".
func ClearSourceMarkCommand(interfaces []string) string {
	command := "sysctl -w"
	for _, name := range interfaces {
		// sysctl reads a slash between dots as a dot.
		command += " net.ipv4.conf." + strings.ReplaceAll(name, ".", "/") + ".src_valid_mark=0"
	}
	return command
}
