package node

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/sluice-mesh/sluice/plugin/file"
)

// A Problem is an actual or possible cause why the node is not in its desired state.
type Problem struct {
	Reason  Reason
	Message string // for users, with the next step if it is known
	// Blocking reports that a pod that starts now may not be redirected, or may fail to start
	// because of Sluice.
	Blocking bool
}

// Reason is a stable word for a problem, used in events and metrics.
type Reason string

// The reasons.
const (
	// no valid configuration to insert the plugin into
	NoConfiguration Reason = "NoNetworkConfiguration"
	NotChainable    Reason = "NotChainable"         // the configuration does not support plugin chains
	Unreadable      Reason = "InvalidConfiguration" // a file that sorts before the one in use is invalid
	// another configuration sorts before the named one
	NotInUse  Reason = "ConfigurationNotInUse"
	Preempted Reason = "Preempted"     // a file sorts before Sluice's copy
	NameTaken Reason = "FileNameTaken" // another program uses the name of Sluice's file
	// the runtime does not use the directory that is mounted in the agent
	DirectoryGone Reason = "DirectoryReplaced"
	// another program has the plugin's name, and cannot be replaced
	WrongExecutable  Reason = "WrongExecutable"
	NotReadyToInsert Reason = "NotReadyToInsert" // the plugin would not work yet
	// another program repeatedly writes the same file
	ConflictingWrites Reason = "ConflictingWriter"
	// a plugin that Sluice's plugin should replace is still in the chain
	OtherPluginStays Reason = "OtherPluginStays"
	DiskFull         Reason = "DiskFull"
	ReadOnly         Reason = "ReadOnlyFileSystem"
	Forbidden        Reason = "PermissionDenied"
	Failed           Reason = "InstallFailed"
	JournalLost      Reason = "JournalDamaged" // the original contents are unknown
	Polling          Reason = "WatchFailed"    // changes are detected by polling
)

func (p Problem) String() string { return fmt.Sprintf("%s: %s", p.Reason, p.Message) }

func problem(reason Reason, blocking bool, format string, args ...any) Problem {
	return Problem{Reason: reason, Message: fmt.Sprintf(format, args...), Blocking: blocking}
}

// problemOf classifies an error of a change.
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
