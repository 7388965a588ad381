package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"

	"github.com/google/go-containerregistry/pkg/crane"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"github.com/sluice-mesh/sluice/e2e/cluster/build"
	"github.com/sluice-mesh/sluice/e2e/cluster/docker"
)

// nodeImage returns the name of the node image in the engine, after loading it if necessary. An
// empty name makes kind pull its default image.
func (k *kindCluster) nodeImage(ctx context.Context) (string, error) {
	switch {
	case k.options.NodeImage == BuildNodeImage:
		return k.importImage(ctx)
	case k.software.Docker == "": // the engine runs on this machine, and pulls the image itself
		return k.options.NodeImage, nil
	default:
		return k.fetchImage(ctx)
	}
}

// importImage imports the root file system of the built node image into the engine, and returns the
// name of the image.
func (k *kindCluster) importImage(ctx context.Context) (string, error) {
	imageName := docker.NodeImage(k.name)
	// docker import does not support hard links.
	archive := exec.CommandContext(ctx, "tar", "--create", "--numeric-owner", "--hard-dereference",
		"--directory="+k.software.NodeRoot, ".")
	var stderr bytes.Buffer
	archive.Stderr = &stderr
	err := k.pipe(ctx, func(w io.Writer) error {
		archive.Stdout = w
		return archive.Run()
	}, "docker", "import", "--change=ENV container=docker",
		`--change=ENTRYPOINT ["`+build.NodeInit+`"]`, "-", imageName)
	if err != nil {
		return "", fmt.Errorf("import the node image: %w: %s", err, &stderr)
	}
	k.progress.logf("imported the node image")
	return imageName, nil
}

// fetchImage pulls the node image on this machine, loads it into an engine without access to a
// registry, and returns its name in the engine.
func (k *kindCluster) fetchImage(ctx context.Context) (string, error) {
	source := k.options.NodeImage
	if source == "" {
		defaultImage, err := os.ReadFile(filepath.Join(k.software.Kind, "image"))
		if err != nil {
			return "", err
		}
		source = string(defaultImage)
	}
	k.progress.logf("pulling %s", source)
	image, err := crane.Pull(source, crane.WithContext(ctx),
		crane.WithPlatform(&v1.Platform{OS: "linux", Architecture: runtime.GOARCH}))
	if err != nil {
		return "", withBuildHint(fmt.Errorf("pull the node image %s: %w", source, err))
	}
	tag, err := name.NewTag(docker.NodeImage(k.name))
	if err != nil {
		return "", err
	}
	// The layers are pulled while the engine loads them.
	if err := k.pipe(ctx, func(w io.Writer) error { return tarball.Write(tag, image, w) }, "docker",
		"load"); err != nil {
		return "", withBuildHint(fmt.Errorf("pull and load the node image %s: %w", source, err))
	}
	k.progress.logf("loaded the node image")
	return tag.String(), nil
}

// pipe runs a command with access to the engine. The input of the command is what write writes.
func (k *kindCluster) pipe(
	ctx context.Context, write func(io.Writer) error, argv ...string,
) error {
	cmd := k.engine.Command(ctx, argv...)
	var output bytes.Buffer
	cmd.Stdout, cmd.Stderr = &output, &output
	in, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	err = errors.Join(write(in), in.Close(), cmd.Wait()) // then the output is complete
	return withOutput(output.Bytes(), err)
}

// withBuildHint adds a hint to an error from pulling the node image: how to build a node image
// without a registry.
func withBuildHint(err error) error {
	return fmt.Errorf("%w\nset E2E_NODE_IMAGE=%s to build a node image without a registry", err,
		BuildNodeImage)
}
