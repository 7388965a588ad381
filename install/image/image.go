// Package image writes container images that hold static programs and nothing else: an archive in the layout of the Open Container
// Initiative, for several platforms, without a container engine. The same files give the same bytes, whatever their times, owners and
// order on disk are, as long as the same release of Go compresses them.
package image

import (
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"path"
	"strings"
)

// A Spec describes an image.
type Spec struct {
	// Ref is its full name with a tag, as ghcr.io/sluice-mesh/sluice:v1.
	Ref string
	// Platforms are its variants, at least one.
	Platforms []Platform
	// Entrypoint and Cmd are what runs, User is the numeric user, Env its environment.
	Entrypoint, Cmd, Env []string
	User                 string
	// Labels are in the configuration, and as annotations on the index.
	Labels map[string]string
}

// A Platform is one variant of an image.
type Platform struct {
	// Architecture is Go's name: amd64, arm64. The system is Linux.
	Architecture string
	// Root is its file system: regular files and their directories. All files are static programs for the architecture.
	Root fs.FS
}

// A Report says what was written.
type Report struct {
	// Digest identifies the image for all platforms: what a registry calls it.
	Digest string
	// Variants are in the order of the platforms.
	Variants []Variant
}

// A Variant is what a node of a platform pulls.
type Variant struct {
	Architecture, Digest string
	// Compressed and Unpacked are sizes in bytes.
	Compressed, Unpacked int64
}

// Write writes an image as an archive that `ctr images import`, `docker load`, `kind load image-archive`, skopeo and crane read.
func Write(w io.Writer, spec Spec) (Report, error) {
	if err := spec.validate(); err != nil {
		return Report{}, err
	}
	store := blobs{}
	var report Report
	var variants []descriptor
	for _, p := range spec.Platforms {
		manifest, variant, err := addVariant(store, spec, p)
		if err != nil {
			return Report{}, fmt.Errorf("variant %s: %w", p.Architecture, err)
		}
		variants, report.Variants = append(variants, manifest), append(report.Variants, variant)
	}
	all, err := store.addJSON(indexType, index{SchemaVersion: 2, MediaType: indexType, Manifests: variants, Annotations: spec.Labels})
	if err != nil {
		return Report{}, err
	}
	report.Digest = all.Digest
	_, tag := splitRef(spec.Ref)
	all.Annotations = map[string]string{"io.containerd.image.name": spec.Ref, "org.opencontainers.image.ref.name": tag}
	top, err := json.Marshal(index{SchemaVersion: 2, MediaType: indexType, Manifests: []descriptor{all}})
	if err != nil {
		return Report{}, fmt.Errorf("encode the index: %w", err)
	}
	return report, writeArchive(w, store, top)
}

func (s Spec) validate() error {
	name, tag := splitRef(s.Ref)
	if name == "" || tag == "" || strings.ContainsAny(s.Ref, " @") {
		return fmt.Errorf("name %q of the image: want registry/name:tag", s.Ref)
	}
	if len(s.Platforms) == 0 {
		return fmt.Errorf("image %s: for no platform", s.Ref)
	}
	return nil
}

// splitRef divides a name; the tag is empty if there is none. A registry may have a port.
func splitRef(ref string) (name, tag string) {
	base := path.Base(ref)
	_, tag, found := strings.Cut(base, ":")
	if !found {
		return ref, ""
	}
	return strings.TrimSuffix(ref, ":"+tag), tag
}

// addVariant adds layer, configuration and manifest of one platform.
func addVariant(store blobs, spec Spec, p Platform) (descriptor, Variant, error) {
	l, err := newLayer(p)
	if err != nil {
		return descriptor{}, Variant{}, err
	}
	layerAt := store.add(layerType, l.compressed)
	config, err := store.addJSON(configType, configuration{
		Architecture: p.Architecture, OS: "linux",
		Config: runConfig{User: spec.User, Env: spec.Env, Entrypoint: spec.Entrypoint, Cmd: spec.Cmd, Labels: spec.Labels},
		RootFS: rootFS{Type: "layers", DiffIDs: []string{l.diffID}},
	})
	if err != nil {
		return descriptor{}, Variant{}, err
	}
	manifest, err := store.addJSON(manifestType, manifest{
		SchemaVersion: 2, MediaType: manifestType, Config: config, Layers: []descriptor{layerAt},
	})
	if err != nil {
		return descriptor{}, Variant{}, err
	}
	manifest.Platform = &platform{Architecture: p.Architecture, OS: "linux"}
	return manifest, Variant{
		Architecture: p.Architecture, Digest: manifest.Digest,
		Compressed: layerAt.Size + config.Size + manifest.Size, Unpacked: l.size,
	}, nil
}
