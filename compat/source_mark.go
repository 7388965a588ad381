package compat

import "strings"

// ClearSourceMarkCommand returns the command that sets the sysctl src_valid_mark of the named
// interfaces to 0. The names may include "all". The setting applies to an interface if it is 1 for
// the interface or for all.
func ClearSourceMarkCommand(interfaces []string) string {
	command := "sysctl -w"
	for _, name := range interfaces {
		// sysctl reads a slash between dots as a dot.
		command += " net.ipv4.conf." + strings.ReplaceAll(name, ".", "/") + ".src_valid_mark=0"
	}
	return command
}
