// Package record keeps what the plugin knows about the attachments of a node's pods: one small file for each, which the verb ADD
// writes and DEL removes, and from which CHECK and the node agent learn what a sandbox should have.
package record

import (
	"errors"
	"fmt"
	"time"

	"github.com/containernetworking/cni/pkg/utils"

	"github.com/sluice-mesh/sluice/compat"
	"github.com/sluice-mesh/sluice/plugin/agent"
	"github.com/sluice-mesh/sluice/rules"
)

// A Key names an attachment: a container may have one to a network for each of its interfaces.
type Key struct {
	ContainerID string `json:"containerID"`
	IfName      string `json:"ifname"`
}

// String is the key as logs and errors name it.
func (k Key) String() string { return k.ContainerID + "/" + k.IfName }

// Validate tells whether the key obeys the rules of CNI: then it is a file name as well.
func (k Key) Validate() error {
	// Two errors of type *types.Error, of which a nil one is no nil error.
	if err := utils.ValidateContainerID(k.ContainerID); err != nil {
		return fmt.Errorf("container id %q: %w", k.ContainerID, err)
	}
	if err := utils.ValidateInterfaceName(k.IfName); err != nil {
		return fmt.Errorf("interface %q: %w", k.IfName, err)
	}
	return nil
}

// A Record is what is kept about an attachment.
type Record struct {
	Key
	// Network is the name of the CNI network.
	Network string `json:"network"`
	// Netns is the path of the sandbox's network namespace.
	Netns string `json:"netns"`
	// Pod names the pod; empty for a sandbox of none.
	Pod Pod `json:"pod,omitzero"`
	// Outcome is "redirect" or "skip", Reason the word for why.
	Outcome string `json:"outcome"`
	Reason  string `json:"reason"`
	// Redirect is what the pod's rules were compiled from, and Engine what has them; nil and empty if it is not redirected.
	Redirect *rules.Redirect `json:"redirect,omitempty"`
	Engine   compat.Engine   `json:"engine,omitempty"`
	// Time is when the verb ADD was done.
	Time time.Time `json:"time"`
}

// Decided tells whether the record says what the pod should have: annotations that were changed since do not change that. Of a pod that
// could not be read it says nothing.
func (r *Record) Decided() bool { return r.Reason != agent.PodUnreadable }

// Pod names a pod.
type Pod struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	UID       string `json:"uid,omitempty"`
}

// errDamaged is in the error about a file that holds no record.
var errDamaged = errors.New("is no record")

// IsDamaged tells whether the error is about a file that holds no record, such as one that somebody has edited.
func IsDamaged(err error) bool { return errors.Is(err, errDamaged) }
