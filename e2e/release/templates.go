package release

import (
	"bytes"
	"embed"
	"text/template"
)

//go:embed krew.yaml nfpm.yaml provenance.json spdx.json
var templateFiles embed.FS

// templates are the manifest of the kubectl plugin for krew, the configuration of packages, the
// provenance, and the SPDX document of a program.
var templates = template.Must(template.ParseFS(templateFiles, "*"))

// addRendered writes an artifact that is rendered from a template.
func (r *Release) addRendered(name, templateName string, data any) error {
	var text bytes.Buffer
	if err := templates.ExecuteTemplate(&text, templateName, data); err != nil {
		return err
	}
	return r.add(name, text.Bytes())
}

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
	return r.addRendered("sluice.yaml", "krew.yaml", struct {
		Version, Home, Program string
		Platforms              []platform
	}{r.Version, Home, Client, platforms})
}
