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
	Message string // a sentence for a user, with what to do where that is known
	// Blocking reports that a pod that starts now may not be redirected, or may fail to start
	// because of Sluice.
	Blocking bool
}

// Reason is a word for a problem, fit for events and metrics.
type Reason string

// The reasons.
const (
	// there is no valid configuration to insert into
	NoConfiguration Reason = "NoNetworkConfiguration"
	NotChainable    Reason = "NotChainable"         // the configuration cannot have a chain
	Unreadable      Reason = "InvalidConfiguration" // a file before the one in use is not valid
	// another configuration comes before the named one, by the order of names
	NotInUse  Reason = "ConfigurationNotInUse"
	Preempted Reason = "Preempted"     // a file comes before our own configuration
	NameTaken Reason = "FileNameTaken" // our file's name is used by others
	// the runtime does not read the directory that is mounted here
	DirectoryGone Reason = "DirectoryReplaced"
	// another program has the plugin's name, and cannot be replaced
	WrongExecutable Reason = "WrongExecutable"
	HeldBack        Reason = "NotReadyToInsert" // the plugin could not work yet
	// somebody else writes the same file again and again
	Contested Reason = "ConflictingWriter"
	// a plugin that ours should replace is still in the chain
	Shared      Reason = "OtherPluginStays"
	DiskFull    Reason = "DiskFull"
	ReadOnly    Reason = "ReadOnlyFileSystem"
	Forbidden   Reason = "PermissionDenied"
	Failed      Reason = "InstallFailed"
	JournalLost Reason = "JournalDamaged" // what was there before us is not known any more
	Polling     Reason = "WatchFailed"    // changes are noticed late
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
