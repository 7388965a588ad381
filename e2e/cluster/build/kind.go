package build

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
)

// NodeInit is the path of the first process of a node whose file system is Software.NodeRoot.
const NodeInit = "/kind/bin/boot"

// DockerPath are the directories with programs in Software.Docker, in search order.
var DockerPath = []string{"bin", "unpacked/usr/bin", "unpacked/usr/sbin"}

// ForKind returns the software of a kind cluster: kind, and the same software as Build. If
// withDocker is true, it includes docker. If withNodeRoot is true, it includes the file system of a
// node. docker and the file system are built from the distribution's packages, whose mirrors must
// be reachable.
func ForKind(
	ctx context.Context, log io.Writer, withDocker, withNodeRoot bool,
) (*Software, error) {
	components := []component{kind, nodeProgram, pause}
	if withDocker {
		components = append(components, docker)
	}
	components = append(components, containers, kubernetes, dns)
	if withNodeRoot {
		components = append(components, nodeImage)
	}
	return buildSoftware(ctx, log, components...)
}

var kind = component{
	name: "kind", inputs: []string{"kind.go", "kind"},
	make: func(ctx context.Context, b *builder, out string) error {
		module, err := b.moduleDir(ctx, compilation{module: "kind"}, "sigs.k8s.io/kind")
		if err != nil {
			return err
		}
		if err := writeDefaultImage(filepath.Join(module, "pkg/apis/config/defaults/image.go"),
			filepath.Join(out, "image")); err != nil {
			return err
		}
		return b.compile(ctx, compilation{
			module: "kind", packages: []string{"sigs.k8s.io/kind"},
			flags: []string{"-ldflags", "-s -w"}, out: filepath.Join(out, "kind"),
		})
	},
	set: func(s *Software, dir string) { s.Kind = dir },
}

var imageConstant = regexp.MustCompile(`const Image = "(.+)"`)

// writeDefaultImage writes the name of the default node image in kind's source to a file.
func writeDefaultImage(source, file string) error {
	content, err := os.ReadFile(source)
	if err != nil {
		return err
	}
	found := imageConstant.FindSubmatch(content)
	if found == nil {
		return fmt.Errorf("kind's %s: no constant Image", source)
	}
	return os.WriteFile(file, found[1], 0o644)
}

var docker = component{
	name: "docker", inputs: []string{"kind.go", "unpack.go", "../cmd/runc"},
	make: func(ctx context.Context, b *builder, out string) error {
		if err := unpack(ctx, filepath.Join(out, "unpacked"), "docker.io", "containerd",
			"runc"); err != nil {
			return fmt.Errorf(
				"docker is not running: start it, or install apt-get to download it: %w", err)
		}
		return b.compile(ctx, compilation{
			module: "../cmd/runc", packages: []string{"."}, flags: []string{"-ldflags", "-s -w"},
			out: filepath.Join(out, "bin", "runc"),
		})
	},
	set: func(s *Software, dir string) { s.Docker = dir },
}
