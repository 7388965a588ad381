package podfile

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/sluice-mesh/sluice/plugin/decide"
)

// A Workload is a pod, or the template of the pods of a workload, among the objects of a file.
type Workload struct {
	// Pod has the name of the workload if it is a template.
	Pod *decide.Pod
	// Namespace is the namespace of the pod, or nil if the file does not have it.
	Namespace *decide.Namespace
	// Source names the object: "Deployment shop/web".
	Source string
	// IsTemplate is set if the pod is the template of a workload.
	IsTemplate bool
	// Ignored names the other objects of the file, except namespaces.
	Ignored []string
}

// workloadKinds lists the kinds that have a pod template, for errors.
const workloadKinds = "Deployment, StatefulSet, DaemonSet, ReplicaSet, ReplicationController, Job or" +
	" CronJob"

// template contains the pod template of a workload.
type template struct {
	Spec struct {
		Template    *decide.Pod `json:"template"`
		JobTemplate struct {
			Spec struct {
				Template *decide.Pod `json:"template"`
			} `json:"spec"`
		} `json:"jobTemplate"`
	} `json:"spec"`
}

// Read reads the first object that is a pod or is of a kind with a pod template, from YAML
// documents, JSON, and Lists as kubectl get -o yaml writes them. The file may also contain the
// namespace of the pod. If the file contains namespaces, but not the pod's, Read returns an error.
func Read(r io.Reader) (*Workload, error) {
	objects, err := read(r)
	if err != nil {
		return nil, err
	}
	index := slices.IndexFunc(objects, func(o object) bool {
		return o.Kind == "Pod" || o.hasTemplate()
	})
	if index < 0 {
		return nil, fmt.Errorf("kind %q: want a Pod, or a %s", objects[0].Kind, workloadKinds)
	}
	found := &Workload{IsTemplate: objects[index].hasTemplate()}
	if found.Pod, err = objects[index].podOrTemplate(); err != nil {
		return nil, err
	}
	m := found.Pod.Metadata
	found.Source = fmt.Sprintf("%s %s/%s", objects[index].Kind, m.Namespace, m.Name)
	var others []string // quoted names of other namespaces
	for i := range objects {
		o := &objects[i]
		switch {
		case i == index:
		case o.Kind == "Namespace":
			namespace := new(decide.Namespace)
			if err := yaml.Unmarshal(o.text, namespace); err != nil {
				return nil, fmt.Errorf("no namespace in YAML or JSON: %w", err)
			}
			if namespace.Metadata.Name == m.Namespace {
				found.Namespace = namespace
			} else {
				others = append(others, fmt.Sprintf("namespace %q", namespace.Metadata.Name))
			}
		default:
			found.Ignored = append(found.Ignored, o.kindAndName())
		}
	}
	if found.Namespace == nil && len(others) > 0 {
		return nil, fmt.Errorf("the pod is in namespace %q, but the file contains %s",
			m.Namespace, strings.Join(others, ", "))
	}
	return found, nil
}

// hasTemplate reports whether the kind of the object has a pod template.
func (o *object) hasTemplate() bool {
	switch o.Kind {
	case "Deployment", "StatefulSet", "DaemonSet", "ReplicaSet", "ReplicationController", "Job",
		"CronJob":
		return true
	}
	return false
}

// kindAndName returns the kind and the name of the object, for lists and errors.
func (o *object) kindAndName() string {
	m := o.Metadata
	kind := cmp.Or(o.Kind, "an object without a kind")
	return strings.TrimSpace(kind + " " + cmp.Or(m.Name, m.GenerateName))
}

// podOrTemplate decodes a pod, or the template of a workload.
func (o *object) podOrTemplate() (*decide.Pod, error) {
	if !o.hasTemplate() {
		return o.pod()
	}
	t := new(template)
	if err := yaml.Unmarshal(o.text, t); err != nil {
		return nil, fmt.Errorf("no %s in YAML or JSON: %w", o.Kind, err)
	}
	pod := cmp.Or(t.Spec.Template, t.Spec.JobTemplate.Spec.Template)
	if pod == nil {
		return nil, fmt.Errorf("%s: there is no template of a pod", o.kindAndName())
	}
	m := &pod.Metadata
	m.Namespace = cmp.Or(o.Metadata.Namespace, "default")
	if m.Name = cmp.Or(o.Metadata.Name, o.Metadata.GenerateName); m.Name == "" {
		return nil, errors.New("the " + o.Kind + " has no name")
	}
	return pod, nil
}
