// Package image builds container images that hold static programs and nothing else, for several
// platforms and without a container engine. [Write] writes an archive in the layout of the Open
// Container Initiative (OCI). Equal files give equal bytes, independent of their times, owners and
// order on disk, as long as the same release of Go compresses them.
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
	// Ref is its full name with a tag, such as ghcr.io/sluice-mesh/sluice:v1.
	Ref string
	// Platforms are its variants, at least one.
	Platforms []Platform
	// Entrypoint and Cmd are executed by User, a numeric user, with the environment Env.
	Entrypoint, Cmd, Env []string
	User                 string
	// Labels are in the configuration, and annotations of the index.
	Labels map[string]string
}

// Sluice returns the specification of the image of the node agent, without platforms.
func Sluice(ref string) Spec {
	_, tag := splitRef(ref)
	return Spec{
		Ref: ref, Entrypoint: []string{"/usr/local/bin/sluice-node"}, Cmd: []string{"run"},
		// The chart runs the agent as root. The other programs need no privileges.
		User: "65532:65532", Env: []string{"PATH=/usr/local/bin"},
		Labels: map[string]string{
			"org.opencontainers.image.title":    "sluice",
			"org.opencontainers.image.source":   "https://github.com/sluice-mesh/sluice",
			"org.opencontainers.image.licenses": "Apache-2.0",
			"org.opencontainers.image.version":  tag,
		},
	}
}

// A Platform is one variant of an image.
type Platform struct {
	// Architecture is Go's name: amd64 or arm64. The operating system is Linux.
	Architecture string
	// Root is its file system: regular files and their directories. All files are static programs
	// for the architecture.
	Root fs.FS
}

// A Report describes what was written.
type Report struct {
	// Digest identifies the image for all platforms in a registry.
	Digest string
	// Variants are in the order of the platforms.
	Variants []Variant
}

// A Variant is what a node of one platform pulls.
type Variant struct {
	Architecture, Digest string
	// Compressed and Unpacked are sizes in bytes.
	Compressed, Unpacked int64
}

// Write writes an image as an archive that `ctr images import`, `docker load`, `kind load
// image-archive`, skopeo and crane read.
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
	return report, writeLayout(w, spec.Ref, func(top layout.Path, o layout.Option) error {
		return top.AppendIndex(index, o)
	})
}

// NameAnnotation is the annotation of an image in an archive with its full name.
const NameAnnotation = "io.containerd.image.name"

// WriteLayout writes a single image as an archive, as [Write] does.
func WriteLayout(w io.Writer, ref string, image v1.Image) error {
	return writeLayout(w, ref, func(top layout.Path, o layout.Option) error {
		return top.AppendImage(image, o)
	})
}

// writeLayout writes a layout as an archive. The annotations are the names that containerd and
// other programs read.
func writeLayout(w io.Writer, ref string, appendTo func(layout.Path, layout.Option) error) error {
	dir, err := os.MkdirTemp("", "image")
	if err != nil {
		return err
	}
	err = func() error {
		top, err := layout.Write(dir, empty.Index)
		if err != nil {
			return err
		}
		_, tag := splitRef(ref)
		annotations := map[string]string{
			NameAnnotation: ref, "org.opencontainers.image.ref.name": tag,
		}
		if err := appendTo(top, layout.WithAnnotations(annotations)); err != nil {
			return err
		}
		return writeArchive(w, os.DirFS(dir), 0o644)
	}()
	if err := errors.Join(err, os.RemoveAll(dir)); err != nil {
		return fmt.Errorf("write the archive: %w", err)
	}
	return nil
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

// splitRef divides a name. The tag is empty if there is none. A registry may have a port.
func splitRef(ref string) (name, tag string) {
	base := path.Base(ref)
	_, tag, found := strings.Cut(base, ":")
	if !found {
		return ref, ""
	}
	return strings.TrimSuffix(ref, ":"+tag), tag
}

// newVariant returns the image of one platform. It has no time of creation, which would make equal
// images differ.
func newVariant(spec Spec, p Platform) (v1.Image, Variant, error) {
	files, unpacked, err := newLayer(p)
	if err != nil {
		return nil, Variant{}, err
	}
	image, err := mutate.AppendLayers(mutate.ConfigMediaType(mutate.MediaType(empty.Image,
		types.OCIManifestSchema1),
		types.OCIConfigJSON), files)
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

// measure sets digest and compressed size.
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
