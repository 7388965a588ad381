// Package embedded decodes files that are embedded in a program.
package embedded

import "sigs.k8s.io/yaml"

// Decode decodes YAML. It rejects unknown fields. It panics if the text is invalid, because the
// text belongs to the program.
func Decode[T any](text []byte) T {
	var value T
	if err := yaml.UnmarshalStrict(text, &value); err != nil {
		panic(err)
	}
	return value
}
