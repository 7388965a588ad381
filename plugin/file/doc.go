// Package file puts files in place so that a reader finds the old content or the new, never a part
// of either.
//
// New content goes to a temporary file next to the old one. It is counted, synchronised with the
// disk and read back before it gets the name; then the directory is synchronised. A full disk, a
// read-only mount or a kill at any moment leaves the old file as it was. Nothing is written when
// content and mode are right already. A symbolic link is followed: the file that it names is
// replaced.
//
// [WriteNoSync] is for state that needs none of this: it only replaces the file.
//
// Errors of the others are of type [*Error] and say what became of the file. The functions may be
// called concurrently and by several processes; only [Sweep] must not run while another writes.
package file

import "strings"

// Temporary files begin and end like this. No container runtime reads a configuration of such a
// name.
const (
	prefix = ".sluice-"
	suffix = ".tmp"
)

func isTemporary(name string) bool {
	return strings.HasPrefix(name, prefix) && strings.HasSuffix(name, suffix)
}
