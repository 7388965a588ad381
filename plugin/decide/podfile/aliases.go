package podfile

import (
	"bytes"
	"fmt"

	"go.yaml.in/yaml/v2"
)

// checkAliases returns an error if the aliases of a YAML document expand to more than maxSize bytes
// of text. Package sigs.k8s.io/yaml writes the text of an anchor again for each of its aliases, and
// limits only the number of expanded nodes.
func checkAliases(document []byte) error {
	if !bytes.Contains(document, []byte("*")) {
		return nil
	}
	var root any
	if err := yaml.Unmarshal(document, &root); err != nil {
		return err
	}
	if textSize(root) > maxSize {
		return fmt.Errorf("more than %d bytes with expanded aliases, which no pod has", maxSize)
	}
	return nil
}

// textSize returns the number of bytes of the keys and strings in a decoded document.
func textSize(node any) int {
	size := 0
	switch node := node.(type) {
	case string:
		return len(node)
	case []any:
		for _, element := range node {
			size += textSize(element)
		}
	case map[any]any:
		for key, value := range node {
			size += textSize(key) + textSize(value)
		}
	}
	return size
}
