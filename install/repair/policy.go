package repair

import (
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/sluice-mesh/sluice/install/serve/podcache"
	"github.com/sluice-mesh/sluice/install/settings"
	"github.com/sluice-mesh/sluice/plugin/decide"
)

// An Action is an action on a pod. Its values are also values of a metric label.
type Action string

// The actions. The empty string means no action.
const (
	InPlace Action = "repair"
	Delete  Action = "delete"
	Label   Action = "label"
)

// A Policy selects the pods to repair, and the actions. The zero value repairs no pod.
type Policy struct {
	// InPlace, Delete and Label are set for the allowed actions. A pod is repaired in place first;
	// Label applies only to pods that may not be deleted (see [Policy.Fallback]).
	InPlace, Delete, Label bool
	// LabelKey and LabelValue are the label that marks a broken pod.
	LabelKey, LabelValue string

	annotation    string
	initContainer string
	exitCode      int    // any if 0
	message       string // any if empty
	labels        labels.Selector
	fields        fields.Selector
}

// New returns the policy of the settings.
func New(v settings.Values) (Policy, error) {
	enabled := v.Bool("REPAIR_ENABLED")
	p := Policy{
		InPlace:       enabled && v.Bool("REPAIR_REPAIR_PODS"),
		Delete:        enabled && v.Bool("REPAIR_DELETE_PODS"),
		Label:         enabled && v.Bool("REPAIR_LABEL_PODS"),
		LabelKey:      v.Text("REPAIR_BROKEN_POD_LABEL_KEY"),
		LabelValue:    v.Text("REPAIR_BROKEN_POD_LABEL_VALUE"),
		annotation:    v.Text("REPAIR_SIDECAR_ANNOTATION"),
		initContainer: v.Text("REPAIR_INIT_CONTAINER_NAME"),
		exitCode:      v.Int("REPAIR_INIT_CONTAINER_EXIT_CODE"),
		message:       strings.TrimSpace(v.Text("REPAIR_INIT_CONTAINER_TERMINATION_MESSAGE")),
	}
	var errLabels, errFields error
	p.labels, errLabels = labels.Parse(v.Text("REPAIR_LABEL_SELECTORS"))
	p.fields, errFields = fields.ParseSelector(v.Text("REPAIR_FIELD_SELECTORS"))
	return p, errors.Join(errLabels, errFields)
}

// IsEnabled reports whether any action is allowed.
func (p *Policy) IsEnabled() bool { return p.InPlace || p.Delete || p.Label }

// A Pod contains the properties of a pod that the policy needs.
type Pod struct {
	podcache.Item
	*decide.Pod
	// Node is the name of the pod's node.
	Node string
}

// Selects reports whether the policy applies to the pod: it has the sidecar's annotation, and both
// selectors match.
func (p *Policy) Selects(pod Pod) bool {
	_, injected := pod.Metadata.Annotations[p.annotation]
	return injected && p.labels.Matches(labels.Set(pod.Metadata.Labels)) &&
		p.fields.Matches(fieldsOf(pod))
}

// IsBroken reports whether the pod's validation container failed with the exit code and the message
// of the settings, and has not succeeded afterwards. It ignores runs that began before the time
// since; the zero time means any run. IsBroken recognizes a failed run only after the kubelet has
// restarted the container.
func (p *Policy) IsBroken(status podcache.PodStatus, since time.Time) bool {
	return slices.ContainsFunc(status.Init, func(c podcache.InitContainer) bool {
		return c.Name == p.initContainer && !c.Succeeded && c.Last != nil &&
			!c.Last.Started.Before(since) &&
			(p.exitCode == 0 || c.Last.ExitCode == p.exitCode) &&
			(p.message == "" || strings.TrimSpace(c.Last.Message) == p.message)
	})
}

// Fallback returns the action for a broken pod that is not repaired in place or still fails
// afterwards: Delete, or Label if deletion is not allowed. It returns an empty string if neither is
// allowed, or if only labeling is allowed and the pod has the label already. Deletion of a mirror
// pod is never allowed, because the kubelet would not create the static pod again.
func (p *Policy) Fallback(pod Pod) Action {
	_, labeled := pod.Metadata.Labels[p.LabelKey]
	switch {
	case p.Delete && pod.ConfigHash() == "":
		return Delete
	case p.Label && !labeled:
		return Label
	}
	return ""
}

// fieldsOf returns the values of a pod's [settings.SelectableFields].
func fieldsOf(pod Pod) fields.Set {
	return fields.Set{
		"metadata.name": pod.Name, "metadata.namespace": pod.Namespace,
		"spec.nodeName": pod.Node, "spec.restartPolicy": pod.PodStatus.RestartPolicy,
		"spec.schedulerName":      pod.PodStatus.SchedulerName,
		"spec.serviceAccountName": pod.PodStatus.ServiceAccount,
		"spec.hostNetwork":        strconv.FormatBool(pod.Spec.HostNetwork),
		"status.phase":            pod.PodStatus.Phase, "status.podIP": pod.Status.PodIP,
	}
}
