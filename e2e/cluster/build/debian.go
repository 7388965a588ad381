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

// The system of a node that a container is: what the Dockerfile of kind's own installs, but for
// storage. Later releases have a systemd that does not run with cgroups of version 1.
const (
	debianRelease  = "bookworm"
	debianMirror   = "http://deb.debian.org/debian"
	debianPackages = "systemd,conntrack,iptables,nftables,iproute2,ethtool,kmod,libseccomp2,pigz,jq,procps"
)

var debian = part{
	name: "debian", from: []string{"debian.go"},
	make: func(ctx context.Context, b *builder, out string) error {
		return b.bootstrap(ctx, out, debianRelease, debianPackages)
	},
}

// bootstrap installs a release of Debian with packages into the folder root of another.
func (b *builder) bootstrap(ctx context.Context, out, release, packages string) error {
	program, env, err := debootstrap(ctx, out)
	if err != nil {
		return err
	}
	root := filepath.Join(out, "root")
	install := exec.CommandContext(ctx, program, "--variant=minbase", "--include="+packages,
		release, root, debianMirror)
	install.Env = append(append(os.Environ(), "DEBIAN_FRONTEND=noninteractive"), env...)
	// What it mounts, and what a package's script starts, ends with it.
	install.SysProcAttr = &unix.SysProcAttr{
		Cloneflags:   unix.CLONE_NEWPID | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS,
		Unshareflags: unix.CLONE_NEWNS, Pdeathsig: unix.SIGKILL,
	}
	if err := b.follow("debian", install); err != nil {
		return err
	}
	return errors.Join(empty(
		filepath.Join(root, "dev"), filepath.Join(root, "var/cache/apt/archives"),
		filepath.Join(root, "var/lib/apt/lists"),
		filepath.Join(root, "usr/share/doc"), filepath.Join(root, "usr/share/man"),
		filepath.Join(root, "usr/share/locale"),
	), os.RemoveAll(filepath.Join(out, "unpacked")))
}

// debootstrap returns the program that installs Debian into a folder, and what it needs in its
// environment. Where it is not installed, the distribution's package is unpacked into a folder.
func debootstrap(ctx context.Context, dir string) (program string, env []string, err error) {
	if program, err = exec.LookPath("debootstrap"); err == nil {
		return program, nil, nil
	}
	root := filepath.Join(dir, "unpacked")
	if err := unpack(ctx, root, "debootstrap"); err != nil {
		return "", nil, fmt.Errorf(
			"the node's system needs debootstrap: install it, or have apt-get: %w", err)
	}
	return filepath.Join(root, "usr/sbin/debootstrap"), []string{"DEBOOTSTRAP_DIR=" +
		filepath.Join(root, "usr/share/debootstrap")}, nil
}
