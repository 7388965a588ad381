package build

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// The system of a node image: Debian with the packages that kind's Dockerfile installs, except the
// packages for storage. systemd of later releases of Debian refuses to boot with cgroup v1.
const (
	debianRelease  = "bookworm"
	debianMirror   = "http://deb.debian.org/debian"
	debianPackages = "systemd,conntrack,iptables,nftables,iproute2,ethtool,kmod,libseccomp2," +
		"pigz,jq,procps"
)

var debian = component{
	name: "debian", inputs: []string{"debian.go"},
	make: func(ctx context.Context, b *builder, out string) error {
		return b.bootstrap(ctx, out, debianRelease, debianPackages)
	},
}

// bootstrap installs a release of Debian with packages into out/root.
func (b *builder) bootstrap(ctx context.Context, out, release, packages string) error {
	program, env, err := findDebootstrap(ctx, out)
	if err != nil {
		return err
	}
	root := filepath.Join(out, "root")
	install := exec.CommandContext(ctx, program, "--variant=minbase", "--include="+packages,
		release, root, debianMirror)
	install.Env = append(append(os.Environ(), "DEBIAN_FRONTEND=noninteractive"), env...)
	// In its own namespaces, the mounts of debootstrap and the processes of package scripts end
	// with it.
	install.SysProcAttr = &unix.SysProcAttr{
		Cloneflags:   unix.CLONE_NEWPID | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS,
		Unshareflags: unix.CLONE_NEWNS, Pdeathsig: unix.SIGKILL,
	}
	if err := b.runLogged("debian", install); err != nil {
		return err
	}
	return errors.Join(removeContents(
		filepath.Join(root, "dev"), filepath.Join(root, "var/cache/apt/archives"),
		filepath.Join(root, "var/lib/apt/lists"),
		filepath.Join(root, "usr/share/doc"), filepath.Join(root, "usr/share/man"),
		filepath.Join(root, "usr/share/locale"),
	), os.RemoveAll(filepath.Join(out, "unpacked")))
}

// findDebootstrap returns the path of the program debootstrap and the variables that it needs. If
// the program is not installed, the distribution's package is unpacked into dir.
func findDebootstrap(ctx context.Context, dir string) (program string, env []string, err error) {
	if program, err = exec.LookPath("debootstrap"); err == nil {
		return program, nil, nil
	}
	root := filepath.Join(dir, "unpacked")
	if err := unpack(ctx, root, "debootstrap"); err != nil {
		return "", nil, fmt.Errorf(
			"building the node's system requires debootstrap: install it or apt-get: %w", err)
	}
	return filepath.Join(root, "usr/sbin/debootstrap"), []string{"DEBOOTSTRAP_DIR=" +
		filepath.Join(root, "usr/share/debootstrap")}, nil
}
