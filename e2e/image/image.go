// Package image builds multi-platform container images that contain only programs and their
// libraries, without a container engine. [Write] writes an archive with an OCI image layout. The
// output is reproducible: it depends on the Spec, on the names and contents of the files and on the
// version of Go, but not on times or owners.
package image

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// A Spec describes an image.
type Spec struct {
	// Ref is the full name of the image with a tag, such as ghcr.io/sluice-mesh/sluice:v1.
	Ref string
	// Platforms contains the platforms, at least one.
	Platforms []Platform
	// Entrypoint, Cmd and Env have the same meaning as in the OCI image configuration. User is a
	// numeric UID, or UID:GID.
	Entrypoint, Cmd, Env []string
	User                 string
	// Labels are the labels of the configuration and the annotations of the index.
	Labels map[string]string
}

// Sluice returns the specification of the node agent's image, without platforms.
func Sluice(ref string) Spec {
	_, tag := splitRef(ref)
	return Spec{
		Ref: ref, Entrypoint: []string{"/usr/local/bin/sluice-node"}, Cmd: []string{"run"},
		// The agent needs root, and the chart overrides the user for it. The other programs of the
		// image need no privileges.
		User: "65532:65532", Env: []string{"PATH=/usr/local/bin"},
		Labels: map[string]string{
			"org.opencontainers.image.title":    "sluice",
			"org.opencontainers.image.source":   "https://github.com/sluice-mesh/sluice",
			"org.opencontainers.image.licenses": "Apache-2.0",
			"org.opencontainers.image.version":  tag,
		},
	}
}

// A Platform is the file system of an image for one architecture.
type Platform struct {
	// Architecture is a GOARCH, amd64 or arm64. The operating system is Linux.
	Architecture string
	// Root contains regular files and directories. All files must be programs or libraries for the
	// architecture. A dynamically linked program requires its loader in Root.
	Root fs.FS
}

// A Report describes a written image.
type Report struct {
	// Digest is the digest of the multi-platform image in a registry.
	Digest string
	// Variants contains the variants in the order of Spec.Platforms.
	Variants []Variant
}

// A Variant is the image for one platform.
type Variant struct {
	Architecture, Digest string
	// Compressed is the size of the manifest, the configuration and the compressed layers in bytes.
	// Unpacked is the total size of the files in bytes.
	Compressed, Unpacked int64
}

// Write writes an image as an archive for `ctr images import`, `docker load`, `kind load
// image-archive`, skopeo and crane.
func Write(w io.Writer, spec Spec) (Report, error) {
	if err := spec.validate(); err != nil {
		return Report{}, err
	}
	var report Report
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, p := range spec.Platforms {
		image, variant, err := newVariant(spec, p)
		if err != nil {
			return Report{}, fmt.Errorf("variant %s: %w", p.Architecture, err)
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{
			Add: image,
			Descriptor: v1.Descriptor{Platform: &v1.Platform{
				OS: "linux", Architecture: p.Architecture,
			}},
		})
		report.Variants = append(report.Variants, variant)
	}
	if len(spec.Labels) > 0 {
		index = mutate.Annotations(index, spec.Labels).(v1.ImageIndex)
	}
	digest, err := index.Digest()
	if err != nil {
		return Report{}, err
	}
	report.Digest = digest.String()
	return report, writeLayout(w, spec.Ref, func(dir layout.Path, o layout.Option) error {
		return dir.AppendIndex(index, o)
	})
}

// NameAnnotation is the key of the annotation that contains the full name of an archive's image.
const NameAnnotation = "io.containerd.image.name"

// WriteLayout writes an image without variants, as an archive in the format of [Write].
func WriteLayout(w io.Writer, ref string, image v1.Image) error {
	return writeLayout(w, ref, func(dir layout.Path, o layout.Option) error {
		return dir.AppendImage(image, o)
	})
}

// writeLayout writes an archive with an OCI image layout. appendTo adds an image or an index to the
// layout with the given option. The option adds annotations with the name of the image for
// containerd and other programs.
func writeLayout(w io.Writer, ref string, appendTo func(layout.Path, layout.Option) error) error {
	dir, err := os.MkdirTemp("", "image")
	if err != nil {
		return err
	}
	err = func() error {
		imageLayout, err := layout.Write(dir, empty.Index)
		if err != nil {
			return err
		}
		_, tag := splitRef(ref)
		annotations := map[string]string{
			NameAnnotation: ref, "org.opencontainers.image.ref.name": tag,
		}
		if err := appendTo(imageLayout, layout.WithAnnotations(annotations)); err != nil {
			return err
		}
		return writeArchive(w, os.DirFS(dir), 0o644)
	}()
	if err := errors.Join(err, os.RemoveAll(dir)); err != nil {
		return fmt.Errorf("write the archive: %w", err)
	}
	return nil
}

// validate returns an error if the name is invalid or the platforms are missing.
func (s Spec) validate() error {
	name, tag := splitRef(s.Ref)
	if name == "" || tag == "" || strings.ContainsAny(s.Ref, " @") {
		return fmt.Errorf("image name %q: want registry/name:tag", s.Ref)
	}
	if len(s.Platforms) == 0 {
		return fmt.Errorf("image %s: no platforms", s.Ref)
	}
	return nil
}

// splitRef splits a reference into name and tag. The tag is empty if the reference has none. The
// registry in the name may have a port.
func splitRef(ref string) (name, tag string) {
	base := path.Base(ref)
	_, tag, found := strings.Cut(base, ":")
	if !found {
		return ref, ""
	}
	return strings.TrimSuffix(ref, ":"+tag), tag
}

// newVariant returns the image for one platform. It sets no creation time, so that the image is
// reproducible.
func newVariant(spec Spec, p Platform) (v1.Image, Variant, error) {
	layer, unpacked, err := newLayer(p)
	if err != nil {
		return nil, Variant{}, err
	}
	base := mutate.MediaType(empty.Image, types.OCIManifestSchema1)
	base = mutate.ConfigMediaType(base, types.OCIConfigJSON)
	image, err := mutate.AppendLayers(base, layer)
	if err != nil {
		return nil, Variant{}, err
	}
	config, err := image.ConfigFile()
	if err != nil {
		return nil, Variant{}, err
	}
	config = config.DeepCopy()
	config.Architecture, config.OS, config.History = p.Architecture, "linux", nil
	config.Config = v1.Config{
		User: spec.User, Env: spec.Env, Entrypoint: spec.Entrypoint, Cmd: spec.Cmd,
		Labels: spec.Labels,
	}
	if image, err = mutate.ConfigFile(image, config); err != nil {
		return nil, Variant{}, err
	}
	variant := Variant{Architecture: p.Architecture, Unpacked: unpacked}
	return image, variant, variant.measure(image)
}

// measure sets the digest and the compressed size of the image.
func (v *Variant) measure(image v1.Image) error {
	digest, err := image.Digest()
	if err != nil {
		return err
	}
	manifest, err := image.Manifest()
	if err != nil {
		return err
	}
	size, err := image.Size()
	if err != nil {
		return err
	}
	v.Digest, v.Compressed = digest.String(), size+manifest.Config.Size
	for _, l := range manifest.Layers {
		v.Compressed += l.Size
	}
	return nil
}
