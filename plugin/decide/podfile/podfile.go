package podfile

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/sluice-mesh/sluice/plugin/decide"
)

// maxSize is the maximum size of a file in bytes. An API server accepts objects of up to 1.5 MiB
// (etcd's --max-request-bytes), which are longer in YAML.
const maxSize = 4 << 20

// An object is one object of a file, of which only these fields were decoded.
type object struct {
	Kind     string `json:"kind"`
	Metadata struct {
		Namespace    string `json:"namespace"`
		Name         string `json:"name"`
		GenerateName string `json:"generateName"`
	} `json:"metadata"`
	// Items are the objects of a List, in which kubectl writes several objects.
	Items []json.RawMessage `json:"items"`

	text []byte // the YAML or JSON of the object
}

// read returns the objects of a file, at least one.
func read(r io.Reader) ([]object, error) {
	data, err := io.ReadAll(io.LimitReader(r, maxSize+1))
	if err != nil {
		return nil, err
	}
	if len(data) > maxSize {
		return nil, fmt.Errorf("more than %d bytes, which no pod has", maxSize)
	}
	var objects []object
	for _, text := range documents(data) {
		o := object{text: text}
		err := checkAliases(text)
		if err == nil {
			err = yaml.Unmarshal(text, &o)
		}
		if err != nil {
			return nil, fmt.Errorf("no pod in YAML or JSON: %w", err)
		}
		// A list has the kind List, or a kind such as PodList. Another object may also have
		// a kind that ends in List, but has no items.
		kind, isList := strings.CutSuffix(o.Kind, "List")
		if !isList || kind != "" && len(o.Items) == 0 {
			objects = append(objects, o)
			continue
		}
		for _, item := range o.Items {
			o := object{text: item}
			if err := json.Unmarshal(item, &o); err != nil {
				return nil, fmt.Errorf("no pod in YAML or JSON: %w", err)
			}
			o.Kind = cmp.Or(o.Kind, kind)
			objects = append(objects, o)
		}
	}
	if len(objects) == 0 {
		return nil, errors.New("no object: want a pod or a workload, as kubectl get -o yaml writes it")
	}
	return objects, nil
}

// pod decodes the object as a pod. A pod without a namespace is in the namespace default, as for
// kubectl. A pod without a name gets its generateName.
func (o *object) pod() (*decide.Pod, error) {
	pod := new(decide.Pod)
	if err := yaml.Unmarshal(o.text, pod); err != nil {
		return nil, fmt.Errorf("no pod in YAML or JSON: %w", err)
	}
	m := &pod.Metadata
	m.Namespace = cmp.Or(m.Namespace, "default")
	if m.Name = cmp.Or(m.Name, o.Metadata.GenerateName); m.Name == "" {
		return nil, errors.New("the pod has no name")
	}
	return pod, nil
}

// documents returns the YAML documents of a file, except documents with only blanks and comments. A
// line that begins with three dashes always begins a document, because multi-line text in a
// document is indented.
func documents(data []byte) [][]byte {
	var found [][]byte
	var current []byte
	hasContent := false
	endDocument := func() {
		if hasContent {
			found = append(found, current)
		}
		current, hasContent = nil, false
	}
	for line := range bytes.Lines(data) {
		after, hasDashes := bytes.CutPrefix(line, []byte("---"))
		if hasDashes && (len(after) == 0 || bytes.ContainsAny(after[:1], " \t\r\n")) {
			endDocument()
			line = after
		}
		current = append(current, line...)
		text := bytes.TrimSpace(line)
		hasContent = hasContent || len(text) > 0 && text[0] != '#'
	}
	endDocument()
	return found
}
