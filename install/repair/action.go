package repair

// An Action is an action on a pod. Its values are also values of a metric label.
type Action string

// The actions. The empty string means no action.
const (
	InPlace Action = "repair"
	Delete  Action = "delete"
	Label   Action = "label"
)

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
