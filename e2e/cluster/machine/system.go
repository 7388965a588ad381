package machine

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// WriteSystem writes the files that programs of the host need in the machine, in addition to the
// files that [Spec.BindHostPrograms] binds: users, groups, the host name with its IPv4 address, and
// links to directories in /usr.
func (d *Dir) WriteSystem(hostname, address string) error {
	var errs []error
	for _, folder := range []string{
		"etc", "var/lib", "var/log", "var/tmp", "root", "home", "mnt", "srv",
	} {
		errs = append(errs, os.MkdirAll(filepath.Join(d.Root(), folder), 0o755))
	}
	for name, content := range map[string]string{
		"passwd": "root:x:0:0:root:/root:/bin/sh\n" +
			"nobody:x:65534:65534:nobody:/:/usr/sbin/nologin\n",
		"group":       "root:x:0:\ndocker:x:999:\nnogroup:x:65534:\n",
		"hostname":    hostname + "\n",
		"hosts":       fmt.Sprintf("127.0.0.1 localhost\n::1 localhost\n%s %s\n", address, hostname),
		"resolv.conf": "",
	} {
		errs = append(errs,
			os.WriteFile(filepath.Join(d.Root(), "etc", name), []byte(content), 0o644))
	}
	for name, target := range map[string]string{
		"var/run": "../run", "bin": "usr/bin", "sbin": "usr/sbin",
	} {
		errs = append(errs, os.Symlink(target, filepath.Join(d.Root(), name)))
	}
	return errors.Join(append(errs, d.linkLibraries())...)
}

// linkLibraries creates links to the library directories in /usr; which of these exist depends on
// the distribution. /lib is not a link, but a directory of links: it must contain the directory
// /lib/modules, which kind mounts into every node.
func (d *Dir) linkLibraries() error {
	var errs []error
	for _, name := range []string{"lib32", "lib64", "libx32"} {
		if _, err := os.Stat(filepath.Join("/usr", name)); err == nil {
			errs = append(errs, os.Symlink("usr/"+name, filepath.Join(d.Root(), name)))
		}
	}
	lib := filepath.Join(d.Root(), "lib")
	entries, err := os.ReadDir("/usr/lib")
	errs = append(errs, err, os.Mkdir(lib, 0o755))
	for _, entry := range entries {
		errs = append(errs,
			os.Symlink("../usr/lib/"+entry.Name(), filepath.Join(lib, entry.Name())))
	}
	if err := os.Mkdir(filepath.Join(lib, "modules"), 0o755); !errors.Is(err, os.ErrExist) {
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
