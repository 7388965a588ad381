package repair

// An Action is an action on a pod, as in the metric.
type Action string

// The actions. The empty string means that there is no action yet.
const (
	InPlace Action = "repair"
	Delete  Action = "delete"
	Label   Action = "label"
)

// Fallback returns the action for a broken pod that is not repaired in place, or an empty string if
// no action is allowed or the pod is already labeled.
func (p *Policy) Fallback(pod Pod) Action {
	_, labeled := pod.Metadata.Labels[p.LabelKey]
	switch {
	case p.Delete:
		return Delete
	case p.Label && !labeled:
		return Label
	}
	return ""
}
