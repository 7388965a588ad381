package kernels

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/sluice-mesh/sluice/e2e/kernels/guest"
	"github.com/sluice-mesh/sluice/e2e/kernels/machine"
)

// binaries contains the compiled programs and tests of Sluice by their path in a machine.
var binaries = map[string]struct {
	module string   // directory of the module that contains the source
	args   []string // of the go command that compiles the program
}{
	"/init":               {"e2e", []string{"build", "./kernels/cmd/guest"}},
	factsPath:             {"e2e", []string{"build", "./kernels/cmd/facts"}},
	rulesPath:             {".", []string{"build", "./rules/cmd/rules"}},
	testPath("nft"):       {".", []string{"test", "./nft", "-c"}},
	testPath("nft/trace"): {".", []string{"test", "./nft/trace", "-c"}},
	testPath("compat"):    {".", []string{"test", "./compat", "-c"}},
}

// build compiles the binaries into dir, at the same paths as in a machine. root is the root
// directory of the checkout.
func build(ctx context.Context, root, arch, dir string) error {
	for target, b := range binaries {
		output, err := filepath.Abs(filepath.Join(dir, target))
		if err != nil {
			return err
		}
		args := []string{b.args[0], "-buildvcs=false", "-ldflags", "-s -w", "-o", output}
		if arch != runtime.GOARCH {
			// make image compiles with -trimpath. With the same flag, the packages that the image
			// and the machine share are compiled once for arch.
			args = append(args, "-trimpath")
		}
		args = append(args, b.args[1:]...)
		cmd := exec.CommandContext(ctx, "go", args...)
		cmd.Dir = filepath.Join(root, b.module)
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH="+arch)
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("go %s for %s: %w\n%s", strings.Join(b.args, " "), arch, err, out)
		}
	}
	return nil
}

// inputs are the files from which an initramfs is made, and the settings of its machine.
type inputs struct {
	root            string // root directory of the checkout
	kernel          string // directory of the unpacked kernel
	binaries        string // directory of Sluice's programs and tests
	programs        string // directory of the unpacked Debian packages
	guestSteps      []guest.Step
	excludedModules []string
}

// writeInitramfs writes the initramfs of a machine.
func (in inputs) writeInitramfs(file string) (err error) {
	out, err := os.Create(file)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	a := machine.NewInitramfs(out)
	if err := in.copyModules(a); err != nil {
		return err
	}
	a.Link(guest.ModprobePath, "/bin/busybox")
	a.Link(guest.DepmodPath, "/bin/busybox")
	for _, applet := range []string{"sh", "cat"} {
		a.Link("/usr/bin/"+applet, "/bin/busybox")
	}
	targets := map[string]string{in.binaries: "", in.programs: ""} // by source directory
	for _, pkg := range testPackages {
		source := filepath.Join(in.root, pkg, "testdata")
		if _, err := os.Stat(source); err == nil {
			targets[source] = "/sluice/" + pkg + "/testdata"
		}
	}
	for source, target := range targets {
		if err := a.Tree(target, source); err != nil {
			return err
		}
	}
	plan, err := json.Marshal(in.guestSteps)
	if err != nil {
		return err
	}
	a.Bytes(guest.PlanFile, 0o644, plan)
	return a.Close()
}

// copyModules adds the modules except excludedModules. A module that needs an excluded one cannot
// be loaded.
func (in inputs) copyModules(a *machine.Initramfs) error {
	root := filepath.Join(in.kernel, modulesDir)
	return filepath.WalkDir(root, func(file string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		if !slices.Contains(in.excludedModules, strings.TrimSuffix(entry.Name(), ".ko")) {
			a.Copy("/lib/modules"+strings.TrimPrefix(file, root), 0o644, file)
		}
		return nil
	})
}
