package podcache

import (
	"encoding/json"
	"slices"
	"time"
)

// PodStatus is how far a pod has come, and what else a field selector may ask for. The plugin is
// not told of it. The zero value is a pod of which nothing is known.
type PodStatus struct {
	// Deleted reports that the pod is being deleted. That cannot be taken back.
	Deleted bool
	// Phase is the phase of the pod's status: Pending, Running, Succeeded, Failed or Unknown.
	Phase string
	// RestartPolicy, SchedulerName and ServiceAccount are those of its specification.
	RestartPolicy, SchedulerName, ServiceAccount string
	// Init are the init containers that have ended at least once.
	Init []InitContainer
}

// Over reports whether the pod's containers have ended for good.
func (l *PodStatus) Over() bool { return l.Phase == "Succeeded" || l.Phase == "Failed" }

// An InitContainer is what is known of an init container that has ended at least once.
type InitContainer struct {
	Name string
	// Succeeded reports that its last run has ended well.
	Succeeded bool
	// Last is the run before the present one, or before the one that waits to begin; nil if there
	// was none.
	Last *Termination
}

// A Termination is how a run of a container ended.
type Termination struct {
	ExitCode int
	Message  string
	// Started is when the run began, to the second; zero if the runtime does not say.
	Started time.Time
}

// longestMessages bounds the messages that are kept of one pod. The kubelet cuts each after 4 KiB.
const longestMessages = 8 << 10

// lifeOf returns what an object says of its life. What is not understood is not known.
func lifeOf(o *object) PodStatus {
	var spec struct{ RestartPolicy, SchedulerName, ServiceAccountName string }
	_ = unmarshal(o.Spec, &spec)
	var status struct {
		Phase                 string
		InitContainerStatuses []initStatus
	}
	_ = unmarshal(o.Status, &status)
	l := PodStatus{
		Deleted: o.DeletionTimestamp != nil, Phase: short(status.Phase), RestartPolicy: short(spec.RestartPolicy),
		SchedulerName: short(spec.SchedulerName), ServiceAccount: short(spec.ServiceAccountName),
	}
	room := longestMessages
	for _, s := range status.InitContainerStatuses {
		c := InitContainer{Name: short(s.Name), Succeeded: s.State.Terminated != nil && s.State.Terminated.ExitCode == 0}
		if t := s.LastState.Terminated; t != nil {
			c.Last = &Termination{ExitCode: t.ExitCode, Message: t.Message, Started: t.StartedAt}
			if room -= len(t.Message); room < 0 {
				c.Last.Message = ""
			}
		}
		if c.Succeeded || c.Last != nil {
			l.Init = append(l.Init, c)
		}
	}
	l.Init = slices.Clip(l.Init)
	return l
}

// initStatus is the part of a ContainerStatus that counts.
type initStatus struct {
	Name             string
	State, LastState struct{ Terminated *termination }
}

type termination struct {
	ExitCode  int
	Message   string
	StartedAt time.Time
}

// UnmarshalJSON implements [json.Unmarshaler]: a time that is none shall not hide the rest.
func (t *termination) UnmarshalJSON(text []byte) error {
	var raw struct {
		ExitCode  int
		Message   string
		StartedAt string
	}
	if err := json.Unmarshal(text, &raw); err != nil {
		return err
	}
	t.ExitCode, t.Message = raw.ExitCode, raw.Message
	t.StartedAt, _ = time.Parse(time.RFC3339, raw.StartedAt)
	return nil
}
