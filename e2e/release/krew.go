package release

import (
	"fmt"

	"sigs.k8s.io/yaml"
)

// A krewPlugin is the manifest of a plugin in an index of krew, in the version v1alpha2 of its
// format.
type krewPlugin struct {
	APIVersion string       `json:"apiVersion"`
	Kind       string       `json:"kind"`
	Metadata   krewMetadata `json:"metadata"`
	Spec       krewSpec     `json:"spec"`
}

type krewMetadata struct {
	Name string `json:"name"`
}

type krewSpec struct {
	Version          string         `json:"version"`
	Homepage         string         `json:"homepage"`
	ShortDescription string         `json:"shortDescription"`
	Description      string         `json:"description"`
	Caveats          string         `json:"caveats"`
	Platforms        []krewPlatform `json:"platforms"`
}

type krewPlatform struct {
	Selector krewSelector `json:"selector"`
	URI      string       `json:"uri"`
	SHA256   string       `json:"sha256"`
	Bin      string       `json:"bin"`
	Files    []krewFile   `json:"files"`
}

type krewSelector struct {
	MatchLabels map[string]string `json:"matchLabels"`
}

type krewFile struct {
	From string `json:"from"`
	To   string `json:"to"`
}

// addKrew writes the manifest for `kubectl krew install sluice`.
func (r *Release) addKrew() error {
	m := krewPlugin{
		APIVersion: "krew.googlecontainertools.github.com/v1alpha2", Kind: "Plugin",
		Metadata: krewMetadata{Name: "sluice"},
		Spec: krewSpec{
			Version: r.Version, Homepage: Home,
			ShortDescription: "Trace, explain and check mesh redirection",
			Description: "Runs the command rules in the Sluice agent on the node of a pod: " +
				"traces connections,\n" +
				"explains which rules a packet meets, checks the rules of a pod, and shows the " +
				"state of all\n" +
				"nodes.\n",
			Caveats: "The user needs permission to get pods and to create pods/exec in the " +
				"agent's namespace.\n",
		},
	}
	for _, arch := range Architectures {
		archive := r.archiveName(Client, arch)
		sum, err := r.checksum(archive)
		if err != nil {
			return err
		}
		m.Spec.Platforms = append(m.Spec.Platforms, krewPlatform{
			Selector: krewSelector{map[string]string{"os": "linux", "arch": arch}},
			URI:      fmt.Sprintf("%s/releases/download/%s/%s", Home, r.Version, archive),
			SHA256:   sum, Bin: Client,
			Files: []krewFile{{Client, "."}, {"LICENSE", "."}},
		})
	}
	text, err := yaml.Marshal(m)
	if err != nil {
		return err
	}
	return r.add("sluice.yaml", text)
}
