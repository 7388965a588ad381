package decide

import (
	"errors"
	"fmt"
	"maps"
	"slices"
)

// A Selector selects pods by their labels and the labels of their namespace. Both must match. The
// JSON names are the names in Istio's enablement selectors.
type Selector struct {
	// Pods selects by the labels of the pod, Namespaces by the labels of its namespace. Nil matches
	// every pod.
	Pods       *LabelSelector `json:"podSelector,omitempty"`
	Namespaces *LabelSelector `json:"namespaceSelector,omitempty"`
}

// Validate returns an error if the selector is invalid. An unknown operator, or a label that no
// object can have, would match no pod, and pods would silently not be redirected.
func (s Selector) Validate() error {
	return errors.Join(inField("podSelector", s.Pods.Validate()),
		inField("namespaceSelector", s.Namespaces.Validate()))
}

// inField adds the name of the field to an error that is not nil.
func inField(name string, err error) error {
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

// A LabelSelector selects objects by their labels, like Kubernetes' metav1.LabelSelector: all of
// its conditions must hold, and a selector without conditions matches every object. Unlike in
// Kubernetes, nil also matches every object.
type LabelSelector struct {
	MatchLabels      map[string]string  `json:"matchLabels,omitempty"`
	MatchExpressions []LabelRequirement `json:"matchExpressions,omitempty"`
}

// A LabelRequirement is a condition on one label.
type LabelRequirement struct {
	Key      string        `json:"key"`
	Operator LabelOperator `json:"operator"`
	// Values has at least one element for In and NotIn, and none for the others.
	Values []string `json:"values,omitempty"`
}

// A LabelOperator is the operator of a condition.
type LabelOperator string

// The operators of Kubernetes. NotIn is true for a missing label.
const (
	LabelIn           LabelOperator = "In"
	LabelNotIn        LabelOperator = "NotIn"
	LabelExists       LabelOperator = "Exists"
	LabelDoesNotExist LabelOperator = "DoesNotExist"
)

// Matches reports whether the labels satisfy all conditions.
func (s *LabelSelector) Matches(labels map[string]string) bool {
	if s == nil {
		return true
	}
	for key, want := range s.MatchLabels {
		if value, ok := labels[key]; !ok || value != want {
			return false
		}
	}
	return !slices.ContainsFunc(s.MatchExpressions, func(r LabelRequirement) bool {
		return !r.matches(labels)
	})
}

// matches reports whether the labels satisfy the condition.
func (r LabelRequirement) matches(labels map[string]string) bool {
	value, ok := labels[r.Key]
	switch r.Operator {
	case LabelIn:
		return ok && slices.Contains(r.Values, value)
	case LabelNotIn:
		return !ok || !slices.Contains(r.Values, value)
	case LabelExists:
		return ok
	case LabelDoesNotExist:
		return !ok
	}
	return false
}

// Validate returns an error that lists all invalid conditions.
func (s *LabelSelector) Validate() error {
	if s == nil {
		return nil
	}
	var errs []error
	for _, key := range slices.Sorted(maps.Keys(s.MatchLabels)) {
		err := errors.Join(validateLabelKey(key), validateLabelValue(s.MatchLabels[key]))
		errs = append(errs, inField(fmt.Sprintf("matchLabels[%s]", quote(key)), err))
	}
	for i, r := range s.MatchExpressions {
		errs = append(errs, inField(fmt.Sprintf("matchExpressions[%d]", i), r.validate()))
	}
	return errors.Join(errs...)
}

// validate returns an error if the key, the operator or the values are invalid.
func (r LabelRequirement) validate() error {
	if err := validateLabelKey(r.Key); err != nil {
		return err
	}
	switch r.Operator {
	case LabelIn, LabelNotIn:
		if len(r.Values) == 0 {
			return fmt.Errorf("values: %s requires at least one", r.Operator)
		}
		var errs []error
		for _, value := range r.Values {
			errs = append(errs, validateLabelValue(value))
		}
		return errors.Join(errs...)
	case LabelExists, LabelDoesNotExist:
		if len(r.Values) > 0 {
			return fmt.Errorf("values: %s does not allow any", r.Operator)
		}
	default:
		return fmt.Errorf("operator: %q is not allowed: want In, NotIn, Exists or DoesNotExist",
			r.Operator)
	}
	return nil
}

// selection is the result of matching a pod against the selectors.
type selection uint8

const (
	selected selection = iota
	notSelected
	selectionNeedsNamespace // the pod's labels match; the namespace's labels are not known
)

// matchSelectors returns selected if at least one of the selectors matches the pod, and otherwise
// selectionNeedsNamespace if one may match, depending on the labels of the namespace.
func matchSelectors(selectors []Selector, pod *Pod, namespace *Namespace) selection {
	result := notSelected
	for _, selector := range selectors {
		switch {
		case !selector.Pods.Matches(pod.Metadata.Labels):
		case selector.Namespaces == nil:
			return selected
		case namespace == nil:
			result = selectionNeedsNamespace
		case selector.Namespaces.Matches(namespace.Metadata.Labels):
			return selected
		}
	}
	return result
}
