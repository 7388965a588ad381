// Package file replaces files atomically: a reader finds either the old or the new content, never a
// part of it.
//
// [Write], [Copy] and [Replace] write the new content to a temporary file next to the old file.
// They sync the temporary file, and check its size and content. Then they rename it, and sync the
// directory. A full disk, a read-only mount or a kill before the rename leaves the old file
// unchanged. If content and mode are already as desired, Write and Copy write nothing. The three
// functions follow a symbolic link and replace its target.
//
// [WriteNoSync] only writes and renames, for state that need not survive a crash of the node.
//
// Write, Copy, Replace, [Remove] and [RemoveIf] return errors of type [*Error], which describe the
// state of the file. All functions may be called concurrently and by several processes, except
// [RemoveTemporary]: it must not run during a call of another function.
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
