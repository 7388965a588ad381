package release

import (
	"bytes"
	_ "embed" // for the template
	"text/template"
)

//go:embed krew.yaml
var krewText string

// krewManifest is the manifest of the plugin in an index of krew.
var krewManifest = template.Must(template.New("krew.yaml").Parse(krewText))

// addKrew writes the manifest for `kubectl krew install sluice`.
func (r *Release) addKrew() error {
	type platform struct{ Arch, Archive, SHA256 string }
	var platforms []platform
	for _, arch := range Architectures {
		archive := r.archiveName(Client, arch)
		sum, err := r.checksum(archive)
		if err != nil {
			return err
		}
		platforms = append(platforms, platform{arch, archive, sum})
	}
	var text bytes.Buffer
	if err := krewManifest.Execute(&text, struct {
		Version, Home, Program string
		Platforms              []platform
	}{r.Version, Home, Client, platforms}); err != nil {
		return err
	}
	return r.add("sluice.yaml", text.Bytes())
}
