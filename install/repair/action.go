package repair

// An Action is what is done about a pod, in the words of the metric.
type Action string

// The actions. The empty one is to wait.
const (
	InPlace Action = "repair"
	Delete  Action = "delete"
	Label   Action = "label"
)

// Instead returns what is to be done about a broken pod that is not repaired in place; nothing if
// all that is allowed is done.
func (p *Policy) Instead(pod Pod) Action {
	_, labelled := pod.Metadata.Labels[p.LabelKey]
	switch {
	case p.Delete:
		return Delete
	case p.Label && !labelled:
		return Label
	}
	return ""
}
