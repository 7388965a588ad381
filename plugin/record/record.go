package record

import (
	"errors"
	"fmt"
	"time"

	"github.com/containernetworking/cni/pkg/utils"

	"github.com/sluice-mesh/sluice/compat"
	"github.com/sluice-mesh/sluice/plugin/agent"
	"github.com/sluice-mesh/sluice/plugin/decide"
	"github.com/sluice-mesh/sluice/rules"
)

// A Key identifies an attachment by its container and its interface.
type Key struct {
	ContainerID string `json:"containerID"`
	IfName      string `json:"ifname"`
}

// String returns the key for logs and errors.
func (k Key) String() string { return k.ContainerID + "/" + k.IfName }

// Validate returns an error unless the key is valid in CNI. Both parts of a valid key contain only
// characters that are allowed in file names.
func (k Key) Validate() error {
	// Both functions return *types.Error, whose nil pointer must not be converted to error: the
	// result would not be nil.
	if err := utils.ValidateContainerID(k.ContainerID); err != nil {
		return fmt.Errorf("container id %q: %w", k.ContainerID, err)
	}
	if err := utils.ValidateInterfaceName(k.IfName); err != nil {
		return fmt.Errorf("interface %q: %w", k.IfName, err)
	}
	return nil
}

// A Record is the stored state of an attachment.
type Record struct {
	Key
	// Network is the name of the CNI network.
	Network string `json:"network"`
	// Netns is the path of the sandbox's network namespace.
	Netns string `json:"netns"`
	// Pod names the pod. It is empty for a sandbox without a pod.
	Pod Pod `json:"pod,omitzero"`
	// Outcome is "redirect", "ambient" or "skip". Reason is its reason, as in package decide, or
	// [agent.PodUnreadable].
	Outcome string `json:"outcome"`
	Reason  string `json:"reason"`
	// Redirect has the parameters of the pod's rules, and is nil if the pod is not redirected or is
	// in ambient mode. Backend names the backend of the rules, and is empty without rules.
	// Backend's key in the file is "engine", as earlier versions wrote it.
	Redirect *rules.Redirect    `json:"redirect,omitempty"`
	Backend  compat.BackendName `json:"engine,omitempty"`
	// Ambient has the parameters of the rules of a pod in ambient mode, and is nil for other pods.
	Ambient *rules.Ambient `json:"ambient,omitempty"`
	// Time is the time of the ADD.
	Time time.Time `json:"time"`
}

// HasRules reports whether ADD, or the node agent for a pod in ambient mode, has installed rules in
// the pod.
func (r *Record) HasRules() bool { return r.Redirect != nil || r.Ambient != nil }

// checkContent returns an error if the parameters or the backend are invalid, or if the parameters
// are missing and the outcome is not "skip". Without this check, a redirected pod whose record has
// lost its parameters would count as a pod outside the mesh. If there are parameters, the outcome
// is not checked, because the parameters alone determine the rules.
func (r *Record) checkContent() error {
	var err error
	switch {
	case r.Redirect != nil && r.Ambient != nil:
		return errors.New("it has the parameters of two redirections")
	case r.Redirect != nil:
		err = r.Redirect.Validate()
	case r.Ambient != nil:
		err = r.Ambient.Validate()
	case r.Outcome != decide.Skip.String():
		return fmt.Errorf("the outcome is %q, but there are no parameters", r.Outcome)
	}
	if err == nil && r.Backend != "" {
		_, err = compat.Choose(r.Backend)
	}
	return err
}

// Decided reports whether the record defines the desired state of the pod. It returns false if ADD
// could not read the pod. Annotations that changed after the ADD do not matter.
func (r *Record) Decided() bool { return r.Reason != agent.PodUnreadable }

// Pod names a pod.
type Pod struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	UID       string `json:"uid,omitempty"`
}

// version is the version of the format. A file without a version has version 1. New fields may be
// added within a version; older programs ignore them.
const version = 1

// storedRecord is the format of the file.
type storedRecord struct {
	Version int `json:"version"`
	Record
}

// errUnusable is wrapped by the error for a file without a usable record.
var errUnusable = errors.New("unusable record")

// IsUnusable reports whether the error is about a file without a usable record: its content is
// invalid, does not match its name, or was written by a newer program.
func IsUnusable(err error) bool { return errors.Is(err, errUnusable) }
