// Package node keeps the plugin in the node's CNI chain.
//
// It is level-triggered. A pass reads the actual state ([Found]), computes the desired state
// ([Desired], a pure function), and applies the difference. Events only trigger a pass. The result
// therefore does not depend on the initial state: after a first start, an upgrade, a kill at any
// time, or writes of other programs.
//
// The order of changes keeps pods working. Executables are in place before a configuration names
// them. A new configuration is in place before an old one is removed. Uninstallation removes the
// configuration first, and an executable only when no cached result of a runtime names it. The node
// is then in its original state. An executable that is still named, by sandboxes of running pods or
// of the agent's own pod, or by a copy of the configuration that Multus made, is replaced by one
// without effect, and the journal is kept, until the next uninstallation. It is not removed at the
// last DEL, because the runtime repeats a DEL if another plugin of the chain fails, and would not
// find it.
//
// Each change of a foreign file is recorded with the original bytes before it is made. If recording
// has become impossible, files that are already recorded are still managed.
//
// Files that keep runtimes from using the plugin are reported by name, and the node then has a
// problem: a file before the named one, or an invalid or unreadable file before all others. The
// agent does not know which runtime is used, nor whether it is configured to use a network by name,
// so it goes by the order of the files. The plugin is put into the configuration that would be used
// without such files, which is used by runtimes that skip them.
//
// Programs that write the same files are detected ([ConflictingWriter]) and reported in the
// [Status].
package node
