package build

import (
	"context"
	"errors"
	"os"
	"path/filepath"
)

// The system of a virtual machine: release and packages, for both container runtimes.
const (
	vmRelease  = "trixie"
	vmPackages = "systemd-sysv,dbus,udev,kmod,linux-image-cloud-amd64,busybox-static,apparmor," +
		"containerd,runc,containernetworking-plugins,crun,conmon,skopeo," +
		"openssh-server,iproute2,nftables,iptables,conntrack,ethtool,procps,mount"
)

var vmSystem = component{
	name: "vm-system", inputs: []string{"vm_system.go", "debian.go"},
	make: func(ctx context.Context, b *builder, out string) error {
		if err := b.bootstrap(ctx, out, vmRelease, vmPackages); err != nil {
			return err
		}
		root := tree(filepath.Join(out, "root"))
		return errors.Join(root.removeUnusedProfiles(), root.configureVMServices())
	},
}

// removeUnusedProfiles removes the AppArmor profiles of programs that are not installed. Loading
// one of the hundred profiles takes a second on an emulated processor.
func (t tree) removeUnusedProfiles() error {
	profiles, err := filepath.Glob(t.path("etc/apparmor.d/*"))
	errs := []error{err}
	for _, profile := range profiles {
		info, err := os.Stat(profile)
		errs = append(errs, err)
		name := filepath.Base(profile)
		if err != nil || info.IsDir() || t.has("usr/bin/"+name) || t.has("usr/sbin/"+name) {
			continue
		}
		errs = append(errs, os.Remove(profile))
	}
	return errors.Join(errs...)
}

// has reports whether the tree contains the file.
func (t tree) has(file string) bool {
	_, err := os.Lstat(t.path(file))
	return err == nil
}

// configureVMServices enables the network, and disables periodic jobs and consoles.
func (t tree) configureVMServices() error {
	const units, packaged = "etc/systemd/system/", "/usr/lib/systemd/system/"
	errs := []error{
		t.link(packaged+"multi-user.target", units+"default.target"),
		t.link(packaged+"systemd-networkd.service",
			units+"multi-user.target.wants/systemd-networkd.service"),
		// With this time stamp, services that run after an update of /usr have nothing to do.
		t.write("etc/.updated", nil, 0o644), t.write("var/.updated", nil, 0o644),
	}
	for _, unit := range []string{
		"apt-daily.timer", "apt-daily-upgrade.timer", "dpkg-db-backup.timer", "fstrim.timer",
		"e2scrub_all.timer", "e2scrub_reap.service", "getty.target", "serial-getty@.service",
	} {
		errs = append(errs, t.link("/dev/null", units+unit))
	}
	return errors.Join(errs...)
}
