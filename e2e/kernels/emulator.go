package kernels

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/sluice-mesh/sluice/e2e/kernels/machine"
)

// emulatorPackages maps architectures to the Debian packages of their emulators.
var emulatorPackages = map[string]string{"amd64": "qemu-system-x86", "arm64": "qemu-system-arm"}

// Required reports whether missing programs or packages are an error. They are if SLUICE_REQUIRE=1
// or CI=true.
func Required() bool { return os.Getenv("SLUICE_REQUIRE") == "1" || os.Getenv("CI") == "true" }

// InstallEmulators installs the emulators of the tasks' architectures with [Install].
func InstallEmulators(ctx context.Context, root string, tasks []Task) error {
	packages := map[string]string{}
	for _, t := range tasks {
		packages[machine.Emulator(t.Kernel.Arch)] = emulatorPackages[t.Kernel.Arch]
	}
	return Install(ctx, root, packages)
}

// Install ensures that programs are installed. packages maps each program to its Debian package. As
// root or if [Required] returns true, Install installs missing packages with apt-get. If packages
// are still missing, it returns an error that names them.
func Install(ctx context.Context, root string, packages map[string]string) error {
	missing := missingPackages(packages)
	if len(missing) == 0 {
		return nil
	}
	var reason string
	if _, err := exec.LookPath("apt-get"); err == nil && (os.Geteuid() == 0 || Required()) {
		const install = `
			apt-get -qq update
			DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends "$@"`
		args := append([]string{"sh", "-c", install, "install"}, missing...)
		out, err := exec.CommandContext(ctx, filepath.Join(root, ".ci", "as-root"),
			args...).CombinedOutput()
		if missing = missingPackages(packages); len(missing) == 0 {
			return nil
		}
		reason = "\nstill missing after apt-get install"
		if err != nil {
			reason += fmt.Sprintf(", which failed: %v", err)
		}
		reason += "\n" + string(out)
	}
	return fmt.Errorf("programs are missing: apt-get install %s%s", strings.Join(missing, " "),
		reason)
}

// missingPackages returns the names of packages whose program is not in PATH.
func missingPackages(packages map[string]string) []string {
	var missing []string
	for program, name := range packages {
		if _, err := exec.LookPath(program); err != nil && !slices.Contains(missing, name) {
			missing = append(missing, name)
		}
	}
	slices.Sort(missing)
	return missing
}
