package kernels

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/sluice-mesh/sluice/e2e/kernels/guest"
	"github.com/sluice-mesh/sluice/e2e/kernels/kmod"
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
			// make image compiles with -trimpath. With the same flag, packages in both the image
			// and a machine are compiled once for this architecture.
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
	programs        string // directory of the programs that tests compare with
	guestSteps      []guest.Step
	excludedModules []string
}

// writeInitramfs writes the initramfs of a machine.
func (in inputs) writeInitramfs(file string) (err error) {
	text, err := os.ReadFile(filepath.Join(in.kernel, modulesFile))
	if err != nil {
		return err
	}
	var modules kmod.Index
	if err := json.Unmarshal(text, &modules); err != nil {
		return fmt.Errorf("%s: %w", modulesFile, err)
	}
	modules = modules.Without(in.excludedModules...)
	out, err := os.Create(file)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	a := machine.NewInitramfs(out)
	for _, m := range modules {
		a.Copy(m.Path, 0o644, filepath.Join(in.kernel, filepath.Base(m.Path)))
	}
	a.Link(guest.ModprobePath, "/init")
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
	for name, value := range map[string]any{
		guest.ModulesFile: modules, guest.PlanFile: in.guestSteps,
	} {
		text, err := json.Marshal(value)
		if err != nil {
			return err
		}
		a.Bytes(name, 0o644, text)
	}
	return a.Close()
}
