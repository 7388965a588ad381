package node

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/sluice-mesh/sluice/plugin/file"
)

// A Problem is a reason why the node is not, or may not be, in its desired state.
type Problem struct {
	Reason  Reason
	Message string // for users, with the next step if it is known
	// Blocking is set if a pod that starts now may have no redirection, or may fail to start
	// because of Sluice.
	Blocking bool
}

// Reason is a stable word for a problem, used in events and messages.
type Reason string

// The reasons.
const (
	// NoNetworkConfiguration: there is no valid configuration to insert the plugin into.
	NoNetworkConfiguration Reason = "NoNetworkConfiguration"
	// NotChainable: the plugin cannot be inserted into the configuration, or other plugins run
	// after it.
	NotChainable Reason = "NotChainable"
	// InvalidConfiguration: a file is invalid, or cannot be read.
	InvalidConfiguration Reason = "InvalidConfiguration"
	// ConfigurationNotInUse: another configuration sorts before the named one, or the named one is
	// missing and another one is in use.
	ConfigurationNotInUse Reason = "ConfigurationNotInUse"
	// Preempted: a file sorts before Sluice's copy.
	Preempted Reason = "Preempted"
	// FileNameTaken: another program uses the name of Sluice's file.
	FileNameTaken Reason = "FileNameTaken"
	// DirectoryReplaced: the runtime does not use the directory that is mounted in the agent, or
	// does not use the configuration or the plugin's executable in this directory.
	DirectoryReplaced Reason = "DirectoryReplaced"
	// WrongExecutable: another program has the plugin's name, and cannot be replaced.
	WrongExecutable Reason = "WrongExecutable"
	// NotReadyToInsert: the plugin would not work yet.
	NotReadyToInsert Reason = "NotReadyToInsert"
	// ConflictingWrites: another program repeatedly writes the same file.
	ConflictingWrites Reason = "ConflictingWriter"
	// OtherPluginStays: a plugin that Sluice's plugin should replace is still in the chain, or
	// another program keeps its plugin after Sluice's plugin.
	OtherPluginStays   Reason = "OtherPluginStays"
	DiskFull           Reason = "DiskFull"
	ReadOnlyFileSystem Reason = "ReadOnlyFileSystem"
	PermissionDenied   Reason = "PermissionDenied"
	InstallFailed      Reason = "InstallFailed"
	// JournalDamaged: the journal is damaged, and the original contents are unknown.
	JournalDamaged Reason = "JournalDamaged"
	// WatchFailed: the directories cannot be watched, and changes are detected by polling.
	WatchFailed Reason = "WatchFailed"
)

func (p Problem) String() string { return fmt.Sprintf("%s: %s", p.Reason, p.Message) }

func newProblem(reason Reason, blocking bool, format string, args ...any) Problem {
	return Problem{Reason: reason, Message: fmt.Sprintf(format, args...), Blocking: blocking}
}

// problemOf returns the blocking problem for the error of a change.
func problemOf(err error) Problem {
	reason := InstallFailed
	switch {
	case errors.Is(err, errGone):
		reason = DirectoryReplaced
	case file.IsFull(err):
		reason = DiskFull
	case file.IsReadOnly(err):
		reason = ReadOnlyFileSystem
	case errors.Is(err, fs.ErrPermission):
		reason = PermissionDenied
	}
	return newProblem(reason, true, "%v", err)
}
