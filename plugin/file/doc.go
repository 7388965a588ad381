// Package file replaces files atomically: a reader finds either the old or the new content, never a
// part of it.
//
// New content is written to a temporary file next to the old file. The temporary file is synced,
// and its size and content are checked. Then it is renamed, and the directory is synced. A full
// disk, a read-only mount or a kill at any time leaves the old file unchanged. If content and mode
// are already as desired, nothing is written. A symbolic link is followed, and its target is
// replaced.
//
// [WriteNoSync] only writes and renames, for state that need not survive a crash of the node.
//
// The other functions return errors of type [*Error], which describe the state of the file. The
// functions may be called concurrently and by several processes; but [RemoveTemporary] must not run
// during a write.
package file

import "strings"

// Prefix and suffix of the names of temporary files. Container runtimes do not read configurations
// with such names.
const (
	prefix = ".sluice-"
	suffix = ".tmp"
)

// isTemporary reports whether the name is the name of a temporary file of this package.
func isTemporary(name string) bool {
	return strings.HasPrefix(name, prefix) && strings.HasSuffix(name, suffix)
}
