package release

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"github.com/sluice-mesh/sluice/e2e/image"
)

// Push pushes the image, the chart and their signatures, if any, from Out to Hub. It uses the
// credentials of "docker login".
func (r *Release) Push(ctx context.Context) error {
	names := []string{r.imageName()}
	if r.Key != nil {
		names = append(names, r.imageSignatureName(), r.chartSignatureName())
	}
	for _, name := range names {
		r.step("pushing " + name)
		if err := pushLayout(ctx, filepath.Join(r.Out, name)); err != nil {
			return fmt.Errorf("push %s: %w", name, err)
		}
	}
	r.step("pushing " + r.chartName())
	if err := r.pushChart(ctx); err != nil {
		return fmt.Errorf("push %s: %w", r.chartName(), err)
	}
	return nil
}

// pushChart pushes the packaged chart as an OCI artifact.
func (r *Release) pushChart(ctx context.Context) error {
	archive, err := os.ReadFile(filepath.Join(r.Out, r.chartName()))
	if err != nil {
		return err
	}
	chart, err := newChartArtifact(archive)
	if err != nil {
		return err
	}
	tag, err := name.NewTag(r.chartRef())
	if err != nil {
		return err
	}
	return remote.Write(tag, chart, remoteOptions(ctx)...)
}

// remoteOptions returns the options of a push: the context, and the credentials of "docker login".
func remoteOptions(ctx context.Context) []remote.Option {
	return []remote.Option{
		remote.WithContext(ctx), remote.WithAuthFromKeychain(authn.DefaultKeychain),
	}
}

// pushLayout pushes the images of an archive with an OCI layout to the names in its index.
func pushLayout(ctx context.Context, archive string) (err error) {
	dir, err := os.MkdirTemp("", "layout")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if out, err := exec.CommandContext(ctx, "tar", "-xf", archive, "-C",
		dir).CombinedOutput(); err != nil {
		return fmt.Errorf("unpack: %w: %s", err, out)
	}
	index, err := layout.ImageIndexFromPath(dir)
	if err != nil {
		return err
	}
	manifest, err := index.IndexManifest()
	if err != nil {
		return err
	}
	for _, m := range manifest.Manifests {
		tag, err := name.NewTag(m.Annotations[image.NameAnnotation])
		if err != nil {
			return err
		}
		if err := push(ctx, tag, index, m); err != nil {
			return err
		}
	}
	return nil
}

// push pushes the image or image index that m describes. index is the index of the layout.
func push(ctx context.Context, tag name.Tag, index v1.ImageIndex, m v1.Descriptor) error {
	options := remoteOptions(ctx)
	if m.MediaType.IsIndex() {
		imageIndex, err := index.ImageIndex(m.Digest)
		if err != nil {
			return err
		}
		return remote.WriteIndex(tag, imageIndex, options...)
	}
	image, err := index.Image(m.Digest)
	if err != nil {
		return err
	}
	return remote.Write(tag, image, options...)
}
