// Package node keeps the plugin in the node's CNI chain.
//
// It is level-triggered. A reconciliation reads the actual state ([Actual]), computes the desired
// state ([Desired], a pure function), and applies the difference. Events only trigger a
// reconciliation. The result therefore does not depend on the initial state: after a first start,
// an upgrade, a kill at any time, or writes of other programs.
//
// The order of changes keeps pods working. Executables are in place before a configuration names
// them. A new configuration is in place before an old one is removed. Uninstallation removes the
// configuration first, and an executable only when no cached result of a runtime names it. The node
// is then in its original state. An executable may still be named by cached results of running pods
// or of the agent's pod, or by a copy of the configuration that Multus made. Such an executable is
// replaced with a no-op executable, and the journal is kept, until the next uninstallation. The
// no-op executable is not removed at the last DEL, because the runtime repeats a DEL if another
// plugin of the chain fails. Before the agent changes a foreign file, it writes a journal entry
// with the original bytes. If the journal cannot be written, files that already have a journal
// entry are still managed.
//
// The agent reports files that prevent runtimes from using the plugin, and the node then has a
// problem. Such a file sorts before the named configuration, or is invalid or unreadable and sorts
// first. The agent does not know which runtime is used, nor whether the runtime is configured to
// use a network by name, so it goes by the order of the files. The plugin is inserted into the
// first valid configuration, which runtimes use that skip invalid files.
//
// The [Status] reports programs that write the same files ([ConflictingWriter]).
package node
