package build

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"

	"github.com/sluice-mesh/sluice/e2e/image"
)

var dns = component{
	name: "dns", inputs: []string{"images.go", "../../image", "kubernetes"},
	make: func(ctx context.Context, b *builder, out string) error {
		c := compilation{
			module: "kubernetes", packages: []string{"./dns"}, flags: []string{"-ldflags", "-s -w"},
		}
		return b.buildImage(ctx, c, out, "coredns", dnsImage)
	},
	set: func(s *Software, dir string) { s.DNS = filepath.Join(dir, "coredns.tar") },
}

var pause = component{
	name: "pause", inputs: []string{"images.go", "../../image", "../cmd/pause"},
	make: func(ctx context.Context, b *builder, out string) error {
		c := compilation{
			module: "../cmd/pause", packages: []string{"."}, flags: []string{"-ldflags", "-s -w"},
		}
		return b.buildImage(ctx, c, out, "pause", pauseImage)
	},
	set: func(s *Software, dir string) { s.Pause = filepath.Join(dir, "pause.tar") },
}

var nodeProgram = component{
	name:   "node",
	inputs: []string{"images.go", "../cmd/node", "../machine", "../../go.mod", "../../go.sum"},
	make: func(ctx context.Context, b *builder, out string) error {
		c := compilation{
			module: "../cmd/node", packages: []string{"."}, flags: []string{"-ldflags", "-s -w"},
			out: filepath.Join(out, "node"),
		}
		return b.compile(ctx, c)
	},
	set: func(s *Software, dir string) { s.Node = filepath.Join(dir, "node") },
}

// buildImage compiles a program to out/root/name, and packs it as an image in out/name.tar.
func (b *builder) buildImage(ctx context.Context, c compilation, out, name, ref string) error {
	root := filepath.Join(out, "root")
	c.out = filepath.Join(root, name)
	if err := errors.Join(os.Mkdir(root, 0o755), b.compile(ctx, c)); err != nil {
		return err
	}
	file, err := os.Create(filepath.Join(out, name+".tar"))
	if err != nil {
		return err
	}
	_, err = image.Write(file, image.Spec{
		Ref: ref, Entrypoint: []string{"/" + name},
		Platforms: []image.Platform{{Architecture: runtime.GOARCH, Root: os.DirFS(root)}},
	})
	if err := errors.Join(err, file.Close()); err != nil {
		return fmt.Errorf("image %s: %w", ref, err)
	}
	return nil
}
