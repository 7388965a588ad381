package main

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/nft/netns"
)

// inNamespace calls do with the namespace that the parameters name, nil for the current one, and
// then closes it.
func (p *parameters) inNamespace(do func(*netns.NS) error) error {
	ns, err := p.openNamespace()
	if err != nil {
		return namespaceError(err)
	}
	defer func() { _ = ns.Close() }()
	return do(ns)
}

// checkNamespace returns the error of opening the namespace if it is bad input. Other errors are
// errors of the system, which the command returns.
func (p *parameters) checkNamespace() error {
	ns, err := p.openNamespace()
	if err != nil {
		if exitCode(namespaceError(err)) == exitBadInput {
			return err
		}
		return nil
	}
	return ns.Close()
}

// openNamespace opens the namespace that the parameters name. It returns nil for the current one.
func (p *parameters) openNamespace() (*netns.NS, error) {
	if err := p.namespaceNotFound(); err != nil {
		return nil, err
	}
	path := cmp.Or(p.netnsPath, p.networkNamespace)
	switch {
	case p.pid != 0:
		ns, err := netns.OpenPID(p.pid)
		if errors.Is(err, unix.ENOENT) {
			return nil, fmt.Errorf("there is no process %d, or it has ended", p.pid)
		}
		return ns, err
	case path != "":
		return openNamed(path)
	}
	return nil, nil
}

// namedNamespaces is the directory of the named namespaces of ip-netns(8).
const namedNamespaces = "/run/netns"

// fileOfNamespace returns the path of a namespace that is given by its path, or by its name in
// ip-netns(8). It returns other names unchanged.
func fileOfNamespace(pathOrName string) string {
	if strings.Contains(pathOrName, "/") {
		return pathOrName
	}
	const oldDir = "/var/run/netns" // another directory only if /var/run is not a link to /run
	for _, dir := range []string{namedNamespaces, oldDir} {
		named := filepath.Join(dir, pathOrName)
		if _, err := os.Lstat(named); err == nil {
			return named
		}
	}
	return pathOrName
}

// openNamed opens a namespace by its path, or by its name in ip-netns(8).
func openNamed(pathOrName string) (*netns.NS, error) {
	path := fileOfNamespace(pathOrName)
	ns, err := netns.Open(path)
	if errors.Is(err, unix.ENOENT) && !strings.Contains(path, "/") {
		return nil, fmt.Errorf(
			"there is no network namespace %q in %s, and no file of this name: %w", path,
			namedNamespaces, unix.ENOENT)
	}
	return ns, err
}

// noNamespace contains the errors of open(2) that mean that the path is wrong.
var noNamespace = []unix.Errno{
	unix.ENOENT, unix.ENOTDIR, unix.ELOOP, unix.ENAMETOOLONG, unix.ENXIO, unix.ENODEV, unix.EINVAL,
}

// namespaceError classifies an error of opening a namespace: it is bad input if there is no such
// file or process, or the file is not a network namespace, and otherwise an error of the system.
// Errors without an errno are bad input: they say that there is no such process or pod, or that the
// opened file is not a network namespace.
func namespaceError(err error) error {
	var number unix.Errno
	if errors.As(err, &number) && !slices.Contains(noNamespace, number) {
		return systemError(err)
	}
	return err
}
