// Package node keeps the plugin in the node's CNI chain.
//
// It is level-triggered. A pass looks at the node ([Found]), computes what its files should be
// ([Desired], a pure function), and makes the difference true. Events only wake it. So it does not
// matter in what state the node is found: after a first start, an upgrade, a kill at any moment, or
// when others have written.
//
// The order is what keeps pods alive. Executables are in place before a configuration names them. A
// new configuration is in place before an old one goes. Uninstalling, the configuration goes first
// and an executable only when no cached result of a runtime names it. The node is then as it was.
// An executable that is named still, by sandboxes of pods that run on or are the agent's own, or by
// a copy of our configuration that Multus has made, stays as one that does nothing, with the
// journal, until somebody uninstalls again. It does not remove itself at the last DEL: the runtime
// repeats a DEL in which another plugin of the chain fails, and would not find it.
//
// Each change of a file that others own is recorded, with the original bytes, before it is made.
// Where that has become impossible, what is recorded already is kept right nevertheless.
//
// What keeps runtimes from coming to the plugin is told with the file's name, and the node is then
// not as it should be: a file before the named one, or one before all that is not valid or cannot
// be read here. Nobody tells the agent which runtime there is, nor whether it is configured to take
// a network by name, so it goes by the order of the files. The plugin is put where it would be
// needed without what keeps runtimes from it, which is where those come that pass such a file over.
//
// Those who write the same files are noticed ([ConflictingWriter]) and told about in the [Status];
// they are never fought in silence.
package node
