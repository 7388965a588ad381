// Package journal records on disk each change of a file on the node, with the original bytes, so
// that a later process can revert the change.
//
// An [Entry] is written before the change that it describes. If the process is killed at any time,
// the file therefore has either its original content or a content whose checksum the entry
// contains. If another program has written the file since then, reverting the change keeps that
// program's content, and removes only Sluice's part.
package journal
