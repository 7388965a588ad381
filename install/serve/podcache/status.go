package podcache

import (
	"slices"
	"time"
)

// PodStatus contains the fields of a pod that only the agent needs: for repairs and for field
// selectors. It is not sent to the plugin. The zero value describes an unknown pod.
type PodStatus struct {
	// Deleted is set if the pod is being deleted, which is irreversible.
	Deleted bool
	// Phase is the phase of the pod's status: Pending, Running, Succeeded, Failed or Unknown.
	Phase string
	// RestartPolicy, SchedulerName and ServiceAccount are from the pod's specification.
	RestartPolicy, SchedulerName, ServiceAccount string
	// Init contains the init containers that have succeeded, or were restarted.
	Init []InitContainer
}

// HasEnded reports whether the pod's containers have ended permanently.
func (s *PodStatus) HasEnded() bool { return s.Phase == "Succeeded" || s.Phase == "Failed" }

// An InitContainer contains the results of an init container that has succeeded, or was restarted.
type InitContainer struct {
	Name string
	// Succeeded is set if the latest run has succeeded.
	Succeeded bool
	// Last is the result of the run before the latest one (lastState in the pod's status); nil if
	// the container was not restarted.
	Last *Termination
}

// A Termination is the result of a run of a container.
type Termination struct {
	ExitCode int
	Message  string
	// Started is the time when the run began, with a resolution of a second; zero if unknown.
	Started time.Time
}

// maxMessagesBytes is the maximum total size of the cached termination messages of a pod in bytes.
// The kubelet truncates each message to 4 KiB.
const maxMessagesBytes = 8 << 10

// statusOf returns the status of an object. Invalid parts are ignored.
func statusOf(o *object) PodStatus {
	var spec struct{ RestartPolicy, SchedulerName, ServiceAccountName string }
	_ = unmarshal(o.Spec, &spec)
	var status struct {
		Phase                 string
		InitContainerStatuses []initStatus
	}
	_ = unmarshal(o.Status, &status)
	result := PodStatus{
		Deleted: o.DeletionTimestamp != nil, Phase: limitLength(status.Phase),
		RestartPolicy: limitLength(spec.RestartPolicy),
		SchedulerName: limitLength(spec.SchedulerName), ServiceAccount: limitLength(spec.ServiceAccountName),
	}
	remaining := maxMessagesBytes
	for _, s := range status.InitContainerStatuses {
		c := InitContainer{
			Name:      limitLength(s.Name),
			Succeeded: s.State.Terminated != nil && s.State.Terminated.ExitCode == 0,
		}
		if t := s.LastState.Terminated; t != nil {
			c.Last = &Termination{ExitCode: t.ExitCode, Message: t.Message}
			c.Last.Started, _ = time.Parse(time.RFC3339, t.StartedAt) // zero if it is invalid
			if remaining -= len(t.Message); remaining < 0 {
				c.Last.Message = ""
			}
		}
		if c.Succeeded || c.Last != nil {
			result.Init = append(result.Init, c)
		}
	}
	result.Init = slices.Clip(result.Init)
	return result
}

// initStatus is the required part of a ContainerStatus.
type initStatus struct {
	Name             string
	State, LastState struct {
		Terminated *struct {
			ExitCode           int
			Message, StartedAt string
		}
	}
}
