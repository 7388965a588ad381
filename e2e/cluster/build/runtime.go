package build

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
)

// containers contains the tools of the module runtime: the programs that run containers, and the
// CNI plugins.
var containers = component{
	name: "runtime", inputs: []string{"runtime.go", "seccomp.go", "runtime"},
	make: func(ctx context.Context, b *builder, out string) error {
		tools, err := b.run(ctx, compilation{module: "runtime"}, "list", "tool")
		if err != nil {
			return err
		}
		bin := compilation{module: "runtime", out: filepath.Join(out, "bin"), flags: []string{
			// Nodes do not use these snapshotters.
			"-tags", "no_btrfs no_zfs no_devmapper", "-ldflags", "-s -w",
		}}
		plugins := compilation{
			module: "runtime", out: filepath.Join(out, "plugins"),
			flags: []string{"-ldflags", "-s -w"},
		}
		runc := compilation{
			module: "runtime", out: filepath.Join(out, "bin", "runc"),
			flags: []string{
				"-tags", "seccomp netgo osusergo", "-ldflags", "-s -w -extldflags -static",
			},
		}
		for _, tool := range strings.Fields(tools) {
			switch {
			case strings.Contains(tool, "/runc"):
				runc.packages = append(runc.packages, tool)
			case strings.Contains(tool, "containernetworking"):
				plugins.packages = append(plugins.packages, tool)
			default:
				bin.packages = append(bin.packages, tool)
			}
		}
		if runc.env, err = b.seccompEnv(ctx, filepath.Join(out, "seccomp")); err != nil {
			return err
		}
		// go build treats -o as a directory only if it exists.
		if err := errors.Join(os.Mkdir(bin.out, 0o755), os.Mkdir(plugins.out, 0o755)); err != nil {
			return err
		}
		for _, c := range []compilation{bin, plugins, runc} {
			if err := b.compile(ctx, c); err != nil {
				return err
			}
		}
		return nil
	},
	set: func(s *Software, dir string) {
		s.Runtime, s.Plugins = filepath.Join(dir, "bin"), filepath.Join(dir, "plugins")
	},
}
