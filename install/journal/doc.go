// Package journal records on disk each change of a file on the node, with the original bytes, so
// that a later process can revert the change.
//
// An [Entry] is written before the change that it describes. After a kill at any time, the file is
// therefore either unchanged or as described by the entry; its bytes show which. If another program
// has written the file since then, its content is kept, and only Sluice's part is removed.
package journal
