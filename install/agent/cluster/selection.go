package cluster

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
)

// PodSpec contains the node selection of a pod.
type PodSpec struct {
	NodeSelector map[string]string `json:"nodeSelector"`
	Affinity     struct {
		NodeAffinity struct {
			Required *struct {
				// Terms are alternatives.
				Terms []Term `json:"nodeSelectorTerms"`
			} `json:"requiredDuringSchedulingIgnoredDuringExecution"`
		} `json:"nodeAffinity"`
	} `json:"affinity"`
}

// A Term matches nodes that meet all its requirements; a term without requirements matches none.
type Term struct {
	Labels []Requirement `json:"matchExpressions"`
	Fields []Requirement `json:"matchFields"`
}

// A Requirement is a condition on a label or field of a node.
type Requirement struct {
	Key      string   `json:"key"`
	Operator string   `json:"operator"`
	Values   []string `json:"values"`
}

// Selects reports whether pods of the spec may run on a node, according to its labels and name.
// Taints are ignored, because they are temporary and evicted pods return. The error means that a
// requirement is invalid or not supported.
func (s *PodSpec) Selects(n *Node) (bool, error) {
	if !labels.SelectorFromSet(s.NodeSelector).Matches(labels.Set(n.Labels)) {
		return false, nil
	}
	required := s.Affinity.NodeAffinity.Required
	if required == nil {
		return true, nil
	}
	for _, t := range required.Terms {
		if matches, err := t.matches(n); matches || err != nil {
			return matches, err
		}
	}
	return false, nil
}

func (t *Term) matches(n *Node) (bool, error) {
	for _, group := range []struct {
		requirements []Requirement
		values       labels.Set
	}{{t.Labels, n.Labels}, {t.Fields, labels.Set{"metadata.name": n.Name}}} {
		for _, r := range group.requirements {
			if matches, err := r.matches(group.values); !matches || err != nil {
				return false, err
			}
		}
	}
	return len(t.Labels)+len(t.Fields) > 0, nil
}

// operators maps the operators of node selectors to the operators of label selectors.
var operators = map[string]selection.Operator{
	"In": selection.In, "NotIn": selection.NotIn, "Exists": selection.Exists,
	"DoesNotExist": selection.DoesNotExist,
	"Gt":           selection.GreaterThan, "Lt": selection.LessThan,
}

func (r *Requirement) matches(values labels.Set) (bool, error) {
	operator, known := operators[r.Operator]
	if !known {
		return false, fmt.Errorf("node affinity: operator %q of %q is not known", r.Operator, r.Key)
	}
	requirement, err := labels.NewRequirement(r.Key, operator, slices.Clone(r.Values))
	if err != nil {
		return false, fmt.Errorf("node affinity: %w", err)
	}
	return requirement.Matches(values), nil
}
