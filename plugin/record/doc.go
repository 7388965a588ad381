// Package record stores what the plugin knows about the attachments of a node's pods: one small
// file per attachment, which ADD writes and DEL removes. CHECK and the node agent read the files to
// determine the desired rules of a sandbox.
//
// A [Store] is the directory of the records in a run directory. A [Record] has a [Key], the pod,
// the decision, and the parameters that the rules were compiled from. An [Index] keeps all records
// in memory and reads only files that have changed.
//
//	store := record.In("/var/run/sluice-cni")
//	r, err := store.Get(record.Key{ContainerID: id, IfName: "eth0"})
package record
