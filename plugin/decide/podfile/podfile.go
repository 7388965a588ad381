// Package podfile reads a pod from a file, as kubectl get pod -o yaml writes it. It is apart from package decide, which the plugin
// links and which reads no YAML.
package podfile

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"

	"sigs.k8s.io/yaml"

	"github.com/sluice-mesh/sluice/plugin/decide"
)

// maxSize is how many bytes are read. An API server takes objects of up to 1.5 MiB (etcd's --max-request-bytes), in JSON.
const maxSize = 4 << 20

// document is the part of a file that says whether it is a pod.
type document struct {
	Kind     string `json:"kind"`
	Metadata struct {
		GenerateName string `json:"generateName"`
	} `json:"metadata"`
}

// Read reads a pod in YAML or JSON. As for kubectl its namespace is default if it has none, and a name that the API server would
// complete counts as it is. Anything but one pod is an error that says what it is.
func Read(r io.Reader) (*decide.Pod, error) {
	data, err := io.ReadAll(io.LimitReader(r, maxSize+1))
	switch {
	case err != nil:
		return nil, err
	case len(data) > maxSize:
		return nil, fmt.Errorf("more than %d bytes, which no pod has", maxSize)
	case documents(data) > 1:
		return nil, errors.New("several YAML documents: want one pod")
	}
	var d document
	var pod decide.Pod
	err = yaml.Unmarshal(data, &d)
	if err == nil {
		err = yaml.Unmarshal(data, &pod)
	}
	if err != nil {
		return nil, fmt.Errorf("no pod in YAML or JSON: %w", err)
	}
	if d.Kind != "Pod" {
		return nil, fmt.Errorf("kind %q: want a Pod, as kubectl get pod NAME -o yaml writes it", d.Kind)
	}
	m := &pod.Metadata
	m.Namespace = cmp.Or(m.Namespace, "default")
	if m.Name = cmp.Or(m.Name, d.Metadata.GenerateName); m.Name == "" {
		return nil, errors.New("the pod has no name")
	}
	return &pod, nil
}

// documents counts the YAML documents that have more in them than blanks and comments. A line that begins with three dashes
// always ends a document: text inside of one is indented.
func documents(data []byte) int {
	n, counted := 0, false
	for line := range bytes.Lines(data) {
		line = bytes.TrimRight(line, " \t\r\n")
		switch {
		case bytes.Equal(line, []byte("---")) || bytes.HasPrefix(line, []byte("--- ")):
			counted = false
		case len(line) > 0 && line[0] != '#' && !counted:
			n, counted = n+1, true
		}
	}
	return n
}
