// Command diskinit is the first process of an initramfs that boots the system on a disk. At the
// first boot, it copies the files in guest.FilesDir to the disk. Machines that start with the same
// disk image can thereby have different files.
package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/e2e/kernels/guest"
)

const (
	// diskModule is the kernel module of the disk driver.
	diskModule = "virtio_blk"
	disk       = "/dev/vda"
	root       = "/root"      // mount point of the disk in the initramfs
	systemInit = "/sbin/init" // first process of the system on the disk
	// copiedFile is a file that exists on the disk after the first boot.
	copiedFile = root + "/var/lib/diskinit"
)

func main() {
	err := run()
	fmt.Fprintf(os.Stderr, "diskinit: %v\n", err)
	_ = unix.Reboot(unix.LINUX_REBOOT_CMD_POWER_OFF)
}

// run prepares the disk and executes the system's init. It returns only on failure.
func run() error {
	for _, m := range []struct{ fsType, target string }{
		{"proc", "/proc"}, {"devtmpfs", "/dev"},
	} {
		if err := os.MkdirAll(m.target, 0o755); err != nil {
			return err
		}
		if err := unix.Mount(m.fsType, m.target, m.fsType, 0, ""); err != nil {
			return fmt.Errorf("mount %s: %w", m.target, err)
		}
	}
	if err := mountDisk(); err != nil {
		return err
	}
	if _, err := os.Stat(copiedFile); errors.Is(err, fs.ErrNotExist) {
		if err := copyFiles(guest.FilesDir, root); err != nil {
			return err
		}
		if err := os.WriteFile(copiedFile, nil, 0o644); err != nil {
			return err
		}
	}
	if err := unix.Mount("/dev", root+"/dev", "", unix.MS_MOVE, ""); err != nil {
		return fmt.Errorf("move /dev: %w", err)
	}
	if err := unix.Unmount("/proc", 0); err != nil {
		return fmt.Errorf("unmount /proc: %w", err)
	}
	if err := errors.Join(os.Chdir(root), unix.Mount(".", "/", "", unix.MS_MOVE, ""),
		unix.Chroot("."), os.Chdir("/")); err != nil {
		return fmt.Errorf("enter %s: %w", disk, err)
	}
	return unix.Exec(systemInit, []string{systemInit}, os.Environ())
}

// mountDisk loads the driver and mounts the disk.
func mountDisk() error {
	if err := guest.Modprobe(diskModule); err != nil {
		return err
	}
	if err := os.MkdirAll(root, 0o755); err != nil {
		return err
	}
	const timeout, interval = 30 * time.Second, 10 * time.Millisecond
	var err error
	for begin := time.Now(); time.Since(begin) < timeout; time.Sleep(interval) {
		if err = unix.Mount(disk, root, "ext4", unix.MS_NOATIME, ""); err == nil {
			return nil
		}
	}
	return fmt.Errorf("mount %s: %w", disk, err)
}

// copyFiles copies the files of a directory, and replaces existing files.
func copyFiles(from, to string) error {
	return filepath.WalkDir(from, func(file string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		target := to + strings.TrimPrefix(file, from)
		if entry.IsDir() {
			return os.MkdirAll(target, 0o755)
		}
		if err := os.Remove(target); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if entry.Type()&fs.ModeSymlink != 0 {
			link, err := os.Readlink(file)
			if err != nil {
				return err
			}
			return os.Symlink(link, target)
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		content, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		return os.WriteFile(target, content, info.Mode().Perm())
	})
}
