package build

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// A dockerArchive is an image in the format of docker save. It has one uncompressed layer with the
// files in root, the names refs, and the environment env. Unlike package image, it supports links
// and files that are not programs.
type dockerArchive struct {
	refs, env []string
	root      string
}

// write writes the archive to a file.
func (a dockerArchive) write(ctx context.Context, file string) error {
	image, err := a.image(ctx)
	if err != nil {
		return err
	}
	named := map[name.Reference]v1.Image{}
	for _, ref := range a.refs {
		tag, err := name.NewTag(ref)
		if err != nil {
			return err
		}
		named[tag] = image
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	return tarball.MultiRefWriteToFile(file, named)
}

// image returns the image, whose layer tar creates.
func (a dockerArchive) image(ctx context.Context) (v1.Image, error) {
	entries, err := os.ReadDir(a.root)
	if err != nil {
		return nil, err
	}
	args := []string{"--create", "--numeric-owner", "--owner=0", "--group=0", "--hard-dereference"}
	for _, entry := range entries {
		args = append(args, entry.Name())
	}
	pack := exec.CommandContext(ctx, "tar", args...)
	pack.Dir = a.root
	files, err := pack.Output()
	if err != nil {
		return nil, fmt.Errorf("pack %s: %w", a.root, withStderr(err))
	}
	image, err := mutate.AppendLayers(empty.Image,
		static.NewLayer(files, types.DockerUncompressedLayer))
	if err != nil {
		return nil, err
	}
	config, err := image.ConfigFile()
	if err != nil {
		return nil, err
	}
	config = config.DeepCopy()
	config.OS, config.Architecture, config.Config.Env = "linux", runtime.GOARCH, a.env
	return mutate.ConfigFile(image, config)
}
