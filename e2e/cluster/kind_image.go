package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/sluice-mesh/sluice/e2e/cluster/build"
	"github.com/sluice-mesh/sluice/e2e/cluster/docker"
)

// nodeImage returns the name of the node image in the engine, after loading it if necessary. An
// empty name makes kind pull its default image.
func (k *kindCluster) nodeImage(ctx context.Context) (string, error) {
	switch {
	case k.options.NodeImage == BuildNodeImage:
		return k.importImage(ctx)
	case k.software.Crane != "":
		return k.fetchImage(ctx)
	default:
		return k.options.NodeImage, nil
	}
}

// importImage loads the built node image into the engine, and returns its name.
func (k *kindCluster) importImage(ctx context.Context) (string, error) {
	name := docker.NodeImage(k.name)
	load := k.engine.Command(ctx, "docker", "import", "--change=ENV container=docker",
		`--change=ENTRYPOINT ["`+build.NodeInit+`"]`, "-", name)
	// docker import does not support hard links.
	archive := exec.CommandContext(ctx, "tar", "--create", "--numeric-owner", "--hard-dereference",
		"--directory="+k.software.NodeRoot, ".")
	var stderr, out bytes.Buffer
	archive.Stderr, load.Stdout, load.Stderr = &stderr, &out, &out
	var err error
	if load.Stdin, err = archive.StdoutPipe(); err != nil {
		return "", err
	}
	if err = load.Start(); err == nil {
		err = errors.Join(archive.Run(), load.Wait())
	}
	if err != nil {
		return "", fmt.Errorf("import the node image: %w: %s%s", err, &stderr, &out)
	}
	k.progress.logf("imported the node image")
	return name, nil
}

// fetchImage pulls the node image on this machine, loads it into an engine without access to a
// registry, and returns its name in the engine.
func (k *kindCluster) fetchImage(ctx context.Context) (string, error) {
	name := k.options.NodeImage
	if name == "" {
		defaultImage, err := os.ReadFile(filepath.Join(k.software.Kind, "image"))
		if err != nil {
			return "", err
		}
		name = string(defaultImage)
	}
	k.progress.logf("pulling %s", name)
	archive := filepath.Join(k.engine.Dir(), "node-image.tar")
	fetch := exec.CommandContext(ctx, k.software.Crane, "pull", "--platform=linux/"+runtime.GOARCH,
		name, archive)
	if err := withOutput(fetch.CombinedOutput()); err != nil {
		return "", withBuildHint(fmt.Errorf("pull the node image %s: %w", name, err))
	}
	file, err := os.Open(archive)
	if err != nil {
		return "", err
	}
	defer func() { _, _ = file.Close(), os.Remove(archive) }()
	load := k.engine.Command(ctx, "docker", "load")
	load.Stdin = file
	out, err := load.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("load the node image %s: %w", name, withOutput(out, err))
	}
	// The image in the archive has another name if it was pulled by digest: crane replaces the
	// digest with a tag.
	_, loaded, found := strings.Cut(string(out), "Loaded image: ")
	if !found {
		return "", fmt.Errorf("load the node image %s: docker load printed no image name: %s", name,
			out)
	}
	k.progress.logf("loaded the node image")
	return strings.TrimSpace(loaded), nil
}

// withBuildHint adds a hint to an error from pulling the node image: how to build a node image
// without a registry.
func withBuildHint(err error) error {
	return fmt.Errorf("%w\nset E2E_NODE_IMAGE=%s to build a node image without a registry", err,
		BuildNodeImage)
}
