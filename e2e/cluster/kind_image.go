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

// image returns the name of the nodes' image in the engine; if it is empty, kind's own image is
// fetched.
func (k *kindCluster) image(ctx context.Context) (string, error) {
	switch {
	case k.options.NodeImage == BuildNodeImage:
		return k.importImage(ctx)
	case k.software.Crane != "":
		return k.fetchImage(ctx)
	default:
		return k.options.NodeImage, nil
	}
}

// importImage loads the built image into the engine.
func (k *kindCluster) importImage(ctx context.Context) (string, error) {
	name := docker.ImageOf(k.name)
	load := k.engine.Command(ctx, "docker", "import", "--change=ENV container=docker",
		`--change=ENTRYPOINT ["`+build.NodeInit+`"]`, "-", name)
	// The files are hard links, which the engine does not know.
	archive := exec.CommandContext(ctx, "tar", "--create", "--numeric-owner", "--hard-dereference",
		"--directory="+k.software.NodeRoot, ".")
	var complaints, out bytes.Buffer
	archive.Stderr, load.Stdout, load.Stderr = &complaints, &out, &out
	var err error
	if load.Stdin, err = archive.StdoutPipe(); err != nil {
		return "", err
	}
	if err = load.Start(); err == nil {
		err = errors.Join(archive.Run(), load.Wait())
	}
	if err != nil {
		return "", fmt.Errorf("import the node image: %w: %s%s", err, &complaints, &out)
	}
	k.steps.done("the node image is imported")
	return name, nil
}

// fetchImage loads an image, fetched by this machine, into an engine without access to a registry.
func (k *kindCluster) fetchImage(ctx context.Context) (string, error) {
	name := k.options.NodeImage
	if name == "" {
		stock, err := os.ReadFile(filepath.Join(k.software.Kind, "image"))
		if err != nil {
			return "", err
		}
		name = string(stock)
	}
	k.steps.done("fetches %s", name)
	archive := filepath.Join(k.engine.Dir(), "node-image.tar")
	fetch := exec.CommandContext(ctx, k.software.Crane, "pull", "--platform=linux/"+runtime.GOARCH,
		name, archive)
	if err := outputText(fetch.CombinedOutput()); err != nil {
		return "", withoutRegistry(fmt.Errorf("fetch the node image %s: %w", name, err))
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
		return "", fmt.Errorf("load the node image %s: %w", name, outputText(out, err))
	}
	// An image without a tag gets another name.
	_, loaded, found := strings.Cut(string(out), "Loaded image: ")
	if !found {
		return "", fmt.Errorf("load the node image %s: %s", name, out)
	}
	k.steps.done("the node image is loaded")
	return strings.TrimSpace(loaded), nil
}

// withoutRegistry adds the remedy to an error of a registry.
func withoutRegistry(err error) error {
	return fmt.Errorf("%w\nE2E_NODE_IMAGE=%s assembles a node image without a registry", err,
		BuildNodeImage)
}
