// Package node keeps the plugin in the node's CNI chain.
//
// The package is level-triggered. A reconciliation reads the actual state ([Actual]), computes the
// desired state ([Desired]), and applies the difference. Events only trigger a reconciliation. The
// result is therefore the same after a first start, an upgrade, a kill at any time, or writes by
// other programs.
//
// # Order of changes
//
// Pods must be able to start and end at any time. Executables are in place before a configuration
// names them, and a new configuration is in place before an old one is removed. Before the agent
// changes a foreign file, it writes a journal entry with the original bytes. If the journal cannot
// be written, the agent still manages files that already have a journal entry.
//
// Uninstallation first removes the plugin from the configuration. It removes an executable only
// when no other configuration and no cached result names the executable. A runtime caches the
// result of each ADD with the configuration of the chain, and DEL runs the plugins of this
// configuration. When all executables are removed, the node is in its original state.
//
// Cached results of running pods or of the agent's pod, or Multus's copy of the configuration, may
// still name an executable. Such an executable is replaced with a no-op executable, and the journal
// is kept, until the next uninstallation. The same happens if the cached results cannot be read.
// The no-op executable is not removed at the last DEL, because the runtime repeats a DEL if another
// plugin of the chain fails.
//
// # Choice of the configuration
//
// The agent knows neither which runtime is used nor whether the runtime selects a network by name.
// It assumes that the runtime uses the first valid file in the order of names, as runtimes that
// skip invalid files do, and inserts the plugin into this file. Files that prevent runtimes from
// using the plugin are problems of the node: a file that sorts before
// [Settings.CNIConfFileName], and an invalid or unreadable file that sorts first.
//
// [Status] reports programs that write the same files ([ConflictingWriter]).
package node
