package build

import (
	"context"
	"errors"
	"os"
	"path/filepath"
)

// crioUnit is the file name of the systemd unit in Software.CRIO.
const crioUnit = "crio.service"

// crioTags are build tags. With them, libseccomp is the only C library that CRI-O needs.
const crioTags = "containers_image_openpgp containers_image_ostree_stub " +
	"exclude_graphdriver_btrfs exclude_graphdriver_devicemapper btrfs_noversion netgo osusergo " +
	"apparmor seccomp"

var crio = component{
	name: "crio", inputs: []string{"crio.go", "seccomp.go", "crio"},
	make: func(ctx context.Context, b *builder, out string) error {
		c := compilation{
			module: "crio", packages: []string{"github.com/cri-o/cri-o/cmd/crio"},
			flags: []string{"-tags", crioTags, "-ldflags", "-s -w"},
			out:   filepath.Join(out, "crio"),
		}
		source, err := b.moduleDir(ctx, compilation{module: c.module}, "github.com/cri-o/cri-o")
		if err != nil {
			return err
		}
		unit, err := os.ReadFile(filepath.Join(source, "contrib/systemd", crioUnit))
		if err != nil {
			return err
		}
		// CRI-O runs the C program pinns to keep the namespaces of pods.
		pinns, err := filepath.Glob(filepath.Join(source, "pinns/src/*.c"))
		if err != nil {
			return err
		}
		if c.env, err = b.seccompEnv(ctx, filepath.Join(out, "seccomp")); err != nil {
			return err
		}
		return errors.Join(os.WriteFile(filepath.Join(out, crioUnit), unit, 0o644),
			runIn(ctx, out, "cc", append([]string{"-std=c99", "-Os", "-static", "-o", "pinns"},
				pinns...)...),
			b.compile(ctx, c))
	},
	set: func(s *Software, dir string) { s.CRIO = dir },
}
