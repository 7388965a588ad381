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

// Reason is a stable word for a problem, used in events and metrics.
type Reason string

// The reasons.
const (
	// NoConfiguration: there is no valid configuration to insert the plugin into.
	NoConfiguration Reason = "NoNetworkConfiguration"
	// NotChainable: the configuration does not support plugin chains.
	NotChainable Reason = "NotChainable"
	// Unreadable: a file is invalid, or cannot be read.
	Unreadable Reason = "InvalidConfiguration"
	// NotInUse: another configuration sorts before the named one.
	NotInUse Reason = "ConfigurationNotInUse"
	// Preempted: a file sorts before Sluice's copy.
	Preempted Reason = "Preempted"
	// NameTaken: another program uses the name of Sluice's file.
	NameTaken Reason = "FileNameTaken"
	// DirectoryGone: the runtime does not use the directory that is mounted in the agent.
	DirectoryGone Reason = "DirectoryReplaced"
	// WrongExecutable: another program has the plugin's name, and cannot be replaced.
	WrongExecutable Reason = "WrongExecutable"
	// NotReadyToInsert: the plugin would not work yet.
	NotReadyToInsert Reason = "NotReadyToInsert"
	// ConflictingWrites: another program repeatedly writes the same file.
	ConflictingWrites Reason = "ConflictingWriter"
	// OtherPluginStays: a plugin that Sluice's plugin should replace is still in the chain.
	OtherPluginStays Reason = "OtherPluginStays"
	DiskFull         Reason = "DiskFull"
	ReadOnly         Reason = "ReadOnlyFileSystem"
	Forbidden        Reason = "PermissionDenied"
	Failed           Reason = "InstallFailed"
	// JournalLost: the journal is damaged, and the original contents are unknown.
	JournalLost Reason = "JournalDamaged"
	// Polling: the directories cannot be watched, and changes are detected by polling.
	Polling Reason = "WatchFailed"
)

func (p Problem) String() string { return fmt.Sprintf("%s: %s", p.Reason, p.Message) }

func problem(reason Reason, blocking bool, format string, args ...any) Problem {
	return Problem{Reason: reason, Message: fmt.Sprintf(format, args...), Blocking: blocking}
}

// problemOf returns the blocking problem for the error of a change.
func problemOf(err error) Problem {
	reason := Failed
	switch {
	case errors.Is(err, errGone):
		reason = DirectoryGone
	case file.IsFull(err):
		reason = DiskFull
	case file.IsReadOnly(err):
		reason = ReadOnly
	case errors.Is(err, fs.ErrPermission):
		reason = Forbidden
	}
	return problem(reason, true, "%v", err)
}
