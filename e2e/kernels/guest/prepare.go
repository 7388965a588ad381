package guest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// searchPath is the PATH of programs.
const searchPath = "/usr/sbin:/usr/bin:/sbin:/bin"

// prepare mounts file systems, indexes the modules, sets environment variables and sets the link lo
// up.
func prepare() error {
	for _, m := range []struct{ fsType, target string }{
		{"proc", "/proc"},
		{"sysfs", "/sys"},
		{"devtmpfs", "/dev"},
		{"tmpfs", "/tmp"},
		{"tmpfs", "/run"},
	} {
		if err := os.MkdirAll(m.target, 0o755); err != nil {
			return err
		}
		// The kernel may have mounted /dev already.
		if err := unix.Mount(m.fsType, m.target, m.fsType, 0, ""); err != nil &&
			!errors.Is(err, unix.EBUSY) {
			return fmt.Errorf("mount %s: %w", m.target, err)
		}
	}
	if err := os.WriteFile("/proc/sys/kernel/modprobe", []byte(ModprobePath), 0o644); err != nil {
		return err
	}
	if out, err := exec.Command(DepmodPath).CombinedOutput(); err != nil {
		return fmt.Errorf("depmod: %w: %s", err, out)
	}
	if err := errors.Join(os.Setenv("PATH", searchPath), os.Setenv("HOME", "/tmp"),
		os.Setenv("TMPDIR", "/tmp")); err != nil {
		return err
	}
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return fmt.Errorf("find link lo: %w", err)
	}
	if err := netlink.LinkSetUp(lo); err != nil {
		return fmt.Errorf("set link lo up: %w", err)
	}
	return nil
}
