// Package journal remembers on disk what was changed on a node, with the bytes that were there
// before, so that the change can be taken back by whoever comes next, whatever happened in between.
//
// An [Entry] is written before the change that it describes. So after a kill at any moment the file
// either is as it was, or is as the entry says; both can be told from the file's bytes. Where
// others have written since, what they wrote is kept and only ours is taken out.
package journal
