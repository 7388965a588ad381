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

// ForKind is Build for a cluster of kind: it also returns kind, a docker if engine is true, and the
// file system of a node if node is true. The last two are built from packages of the distribution,
// whose mirrors must be reachable. For a docker without such a node it returns crane.
func ForKind(ctx context.Context, log io.Writer, engine, node bool) (*Software, error) {
	b, unlock, err := open(ctx, log)
	if err != nil {
		return nil, err
	}
	defer unlock()
	s := &Software{Logs: filepath.Join(b.out, "logs")}
	parts := []part{kind, keeper, pause}
	if engine {
		parts = append(parts, docker)
	}
	if engine && !node {
		parts = append(parts, crane)
	}
	parts = append(parts, containers, kubernetes, dns)
	if node {
		parts = append(parts, nodeImage)
	}
	return s, b.parts(ctx, s, parts...)
}

var kind = part{
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
	found: func(s *Software, dir string) { s.Kind = dir },
}

var imageConstant = regexp.MustCompile(`const Image = "(.+)"`)

// stockImage writes the name of the node image in kind's source to a file.
func stockImage(source, file string) error {
	content, err := os.ReadFile(source)
	if err != nil {
		return err
	}
	found := imageConstant.FindSubmatch(content)
	if found == nil {
		return fmt.Errorf("kind's %s has another form than it had", source)
	}
	return os.WriteFile(file, found[1], 0o644)
}

// crane fetches an image for an engine without access to a registry.
var crane = part{
	name: "crane", from: []string{"../../deploy/go.mod", "../../deploy/go.sum"},
	make: func(ctx context.Context, b *builder, out string) error {
		return b.compile(ctx, compilation{
			module:   "../../deploy",
			packages: []string{"github.com/google/go-containerregistry/cmd/crane"},
			flags:    []string{"-ldflags", "-s -w"}, out: filepath.Join(out, "crane"),
		})
	},
	found: func(s *Software, dir string) { s.Crane = filepath.Join(dir, "crane") },
}

var docker = part{
	name: "docker", from: []string{"kind.go", "unpack.go", "../cmd/runc"},
	make: func(ctx context.Context, b *builder, out string) error {
		if err := unpack(ctx, filepath.Join(out, "unpacked"), "docker.io", "containerd",
			"runc"); err != nil {
			return fmt.Errorf(
				"no docker runs here: start one, or have apt-get, which gets the distribution's: %w", err)
		}
		return b.compile(ctx, compilation{
			module: "../cmd/runc", packages: []string{"."}, flags: []string{"-ldflags", "-s -w"},
			out: filepath.Join(out, "bin", "runc"),
		})
	},
	found: func(s *Software, dir string) { s.Docker = dir },
}
