package build

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
)

// NodeInit is the first process of a node whose file system is Software.NodeRoot.
const NodeInit = "/kind/bin/boot"

// DockerPath are the directories with programs in Software.Docker, in search order.
var DockerPath = []string{"bin", "unpacked/usr/bin", "unpacked/usr/sbin"}

// ForKind returns the software of a cluster of kind: the software of Build and kind, docker if
// engine is true, and the file system of a node if node is true. docker and the file system are
// built from the distribution's packages, whose mirrors must be reachable. If engine is true and
// node is false, it also returns crane.
func ForKind(ctx context.Context, log io.Writer, engine, node bool) (*Software, error) {
	b, unlock, err := open(ctx, log)
	if err != nil {
		return nil, err
	}
	defer unlock()
	s := &Software{Logs: filepath.Join(b.out, "logs")}
	components := []component{kind, nodeProgram, pause}
	if engine {
		components = append(components, docker)
	}
	if engine && !node {
		components = append(components, crane)
	}
	components = append(components, containers, kubernetes, dns)
	if node {
		components = append(components, nodeImage)
	}
	return s, b.buildAll(ctx, s, components...)
}

var kind = component{
	name: "kind", from: []string{"kind.go", "kind"},
	make: func(ctx context.Context, b *builder, out string) error {
		module, err := b.moduleFolder(ctx, compilation{module: "kind"}, "sigs.k8s.io/kind")
		if err != nil {
			return err
		}
		if err := stockImage(filepath.Join(module, "pkg/apis/config/defaults/image.go"),
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

// stockImage writes the name of the default node image in kind's source to a file.
func stockImage(source, file string) error {
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

// crane fetches an image for an engine without access to a registry.
var crane = component{
	name: "crane", from: []string{"../../deploy/go.mod", "../../deploy/go.sum"},
	make: func(ctx context.Context, b *builder, out string) error {
		return b.compile(ctx, compilation{
			module:   "../../deploy",
			packages: []string{"github.com/google/go-containerregistry/cmd/crane"},
			flags:    []string{"-ldflags", "-s -w"}, out: filepath.Join(out, "crane"),
		})
	},
	set: func(s *Software, dir string) { s.Crane = filepath.Join(dir, "crane") },
}

var docker = component{
	name: "docker", from: []string{"kind.go", "unpack.go", "../cmd/runc"},
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
