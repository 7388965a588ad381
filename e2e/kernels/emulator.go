package kernels

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/sluice-mesh/sluice/e2e/kernels/machine"
)

// emulatorPackages contains Debian's packages with the emulators, by architecture.
var emulatorPackages = map[string]string{"amd64": "qemu-system-x86", "arm64": "qemu-system-arm"}

// Required reports whether missing programs or packages are an error: SLUICE_REQUIRE=1 or CI=true.
func Required() bool { return os.Getenv("SLUICE_REQUIRE") == "1" || os.Getenv("CI") == "true" }

// Emulators ensures that the emulators of the tasks' architectures are installed. As root in CI, it
// installs Debian's packages. Otherwise the error names what is missing.
func Emulators(ctx context.Context, root string, tasks []Task) error {
	missing := missingEmulators(tasks)
	if len(missing) == 0 {
		return nil
	}
	var reason string
	if _, err := exec.LookPath("apt-get"); err == nil && (os.Geteuid() == 0 || Required()) {
		const install = `apt-get -qq update; DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends "$@"`
		args := append([]string{"sh", "-c", install, "install"}, missing...)
		out, err := exec.CommandContext(ctx, filepath.Join(root, ".ci", "as-root"),
			args...).CombinedOutput()
		if missing = missingEmulators(tasks); len(missing) == 0 {
			return nil
		}
		reason = fmt.Sprintf("\ninstalling failed: %v\n%s", err, out)
	}
	return fmt.Errorf("no emulator: apt-get install %s%s", strings.Join(missing, " "), reason)
}

// missingEmulators lists the packages to install.
func missingEmulators(tasks []Task) []string {
	var packages []string
	seen := map[string]bool{}
	for _, t := range tasks {
		arch := t.Kernel.Arch
		if _, err := exec.LookPath(machine.Emulator(arch)); err != nil && !seen[arch] {
			seen[arch] = true
			packages = append(packages, emulatorPackages[arch])
		}
	}
	return packages
}
