package machine

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// mountAll mounts a machine's file systems and the read-only binds (see Spec.Binds) below the
// directory root, and makes root the root directory of this process. Other mount namespaces do not
// see these mounts.
func mountAll(root string, binds map[string]string, hierarchies []hierarchy) error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make the mounts private: %w", err)
	}
	if err := bind(root, root, false); err != nil {
		return err
	}
	for target, source := range binds {
		if err := bind(source, filepath.Join(root, target), true); err != nil {
			return err
		}
	}
	for _, m := range []struct{ fsType, target, options string }{
		{"proc", "proc", ""},
		{"sysfs", "sys", ""},
		{"tmpfs", "run", "mode=755"},
		// The kernel lets a pod in a user namespace mount proc only if there is a proc mount
		// without mounts over its files. maskSysctls mounts over files in /proc, but not in
		// /run/proc.
		{"proc", "run/proc", ""},
		{"tmpfs", "tmp", "mode=1777"},
		{"tmpfs", "dev", "mode=755"},
		{"devpts", "dev/pts", "newinstance,ptmxmode=0666,mode=620"},
		{"tmpfs", "dev/shm", "mode=1777"},
		{"mqueue", "dev/mqueue", ""},
	} {
		if err := mount(m.fsType, filepath.Join(root, m.target), m.options); err != nil {
			return err
		}
	}
	if err := errors.Join(createDevices(root), mountCgroups(root, hierarchies),
		maskSysctls(root), pivot(root)); err != nil {
		return err
	}
	// With shared propagation, services and pods see each other's mounts.
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_SHARED, ""); err != nil {
		return fmt.Errorf("make the mounts shared: %w", err)
	}
	return nil
}

// mount mounts a file system on a directory, which it creates.
func mount(fsType, target, options string) error {
	err := os.MkdirAll(target, 0o755)
	if err == nil {
		err = unix.Mount(fsType, target, fsType, 0, options)
	}
	if err != nil {
		return fmt.Errorf("mount %s on %s: %w", fsType, target, err)
	}
	return nil
}

// bind mounts a file or directory at another path, which it creates.
func bind(source, target string, readOnly bool) error {
	info, err := os.Stat(source)
	if err != nil {
		return fmt.Errorf("bind: %w", err)
	}
	if info.IsDir() {
		err = os.MkdirAll(target, 0o755)
	} else if err = os.MkdirAll(filepath.Dir(target), 0o755); err == nil {
		var file *os.File
		if file, err = os.OpenFile(target, os.O_CREATE|os.O_RDONLY, 0o644); err == nil {
			err = file.Close()
		}
	}
	if err == nil {
		err = unix.Mount(source, target, "", unix.MS_BIND|unix.MS_REC, "")
	}
	if err == nil && readOnly {
		err = unix.Mount("", target, "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY, "")
	}
	if err != nil {
		return fmt.Errorf("bind %s on %s: %w", source, target, err)
	}
	return nil
}

// createDevices provides the host's standard device files, but none for hardware.
func createDevices(root string) error {
	for _, name := range []string{
		"null", "zero", "full", "random", "urandom", "tty", "kmsg", "fuse", "net/tun",
	} {
		err := bind("/dev/"+name, filepath.Join(root, "dev", name), false)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	for name, target := range map[string]string{
		"ptmx": "pts/ptmx", "fd": "/proc/self/fd", "stdin": "/proc/self/fd/0",
		"stdout": "/proc/self/fd/1", "stderr": "/proc/self/fd/2",
	} {
		if err := os.Symlink(target, filepath.Join(root, "dev", name)); err != nil {
			return err
		}
	}
	return nil
}

// mountCgroups mounts the host's cgroup hierarchies at the same paths. In the machine's cgroup
// namespace, the root of each hierarchy is the machine's cgroup.
func mountCgroups(root string, hierarchies []hierarchy) error {
	for _, h := range hierarchies {
		if h.Type == "cgroup" {
			if err := mount("tmpfs", filepath.Join(root, "sys/fs/cgroup"), "mode=755"); err != nil {
				return err
			}
			break
		}
	}
	for _, h := range hierarchies {
		target := filepath.Join(root, h.Mount)
		if err := os.MkdirAll(target, 0o755); err != nil {
			return err
		}
		if err := unix.Mount(h.Type, target, h.Type, 0, h.Options); err != nil {
			return fmt.Errorf("mount %s (%s) on %s: %w", h.Type, h.Options, target, err)
		}
		if h.Mount == "/sys/fs/cgroup" {
			if err := delegate(target); err != nil {
				return fmt.Errorf("enable the cgroup controllers: %w", err)
			}
		}
		// A mount of several controllers also has a symbolic link for each of them.
		if names := strings.Split(h.Options, ","); h.Type == "cgroup" && len(names) > 1 {
			for _, name := range names {
				if err := os.Symlink(filepath.Base(target),
					filepath.Join(filepath.Dir(target), name)); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// delegate enables all controllers for the children of a cgroup v2. Because such a cgroup must not
// contain processes, delegate first moves this process into a child.
func delegate(cgroup string) error {
	child := filepath.Join(cgroup, "init")
	if err := os.Mkdir(child, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	if err := joinCgroup(child); err != nil {
		return err
	}
	available, err := os.ReadFile(filepath.Join(cgroup, "cgroup.controllers"))
	if err != nil {
		return err
	}
	for _, controller := range strings.Fields(string(available)) {
		if err := os.WriteFile(filepath.Join(cgroup, "cgroup.subtree_control"),
			[]byte("+"+controller), 0); err != nil {
			return fmt.Errorf("%s: %w", controller, err)
		}
	}
	return nil
}

// maskSysctls mounts files of the machine over the kernel-wide sysctls that the kubelet reads and
// sets. The kubelet recognizes a reboot by the new boot ID.
func maskSysctls(root string) error {
	bootID, err := os.ReadFile("/proc/sys/kernel/random/uuid") // a new one at each read
	if err != nil {
		return err
	}
	for name, value := range map[string]string{
		"vm/overcommit_memory":      "1\n",
		"vm/panic_on_oom":           "0\n",
		"kernel/panic":              "10\n",
		"kernel/panic_on_oops":      "1\n",
		"kernel/keys/root_maxkeys":  "1000000\n",
		"kernel/keys/root_maxbytes": "25000000\n",
		"kernel/random/boot_id":     string(bootID),
	} {
		file := filepath.Join(root, "run/sysctl", name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(file, []byte(value), 0o644); err != nil {
			return err
		}
		if err := bind(file, filepath.Join(root, "proc/sys", name), false); err != nil {
			return err
		}
	}
	return nil
}

// pivot makes root, which must be a mount point, the root directory of this process and its
// children, and unmounts the old root.
func pivot(root string) error {
	if err := unix.Chdir(root); err != nil {
		return fmt.Errorf("enter %s: %w", root, err)
	}
	// PivotRoot mounts the old root over the new root.
	if err := unix.PivotRoot(".", "."); err != nil {
		return fmt.Errorf("make %s the root: %w", root, err)
	}
	if err := unix.Unmount(".", unix.MNT_DETACH); err != nil {
		return fmt.Errorf("unmount the old root: %w", err)
	}
	return unix.Chdir("/")
}
