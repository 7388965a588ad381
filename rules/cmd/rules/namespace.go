package main

import (
	"cmp"
	"errors"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/nft/netns"
)

// inNamespace opens the namespace that the parameters name for the time of do; nil is the current one.
func (p *parameters) inNamespace(do func(*netns.NS) error) error {
	ns, err := p.openNamespace()
	if err != nil {
		return wrongNamespace(err)
	}
	defer func() { _ = ns.Close() }()
	return do(ns)
}

func (p *parameters) openNamespace() (*netns.NS, error) {
	if err := p.lost(); err != nil {
		return nil, err
	}
	path := cmp.Or(p.netnsPath, p.networkNamespace)
	switch {
	case p.pid != 0:
		return netns.OpenPID(p.pid)
	case path != "":
		return netns.Open(path)
	}
	return nil, nil
}

// noNamespace are the errors of open(2) that say that the path is wrong.
var noNamespace = []unix.Errno{unix.ENOENT, unix.ENOTDIR, unix.ELOOP, unix.ENAMETOOLONG, unix.ENXIO, unix.ENODEV, unix.EINVAL}

// wrongNamespace tells bad input (there is no such file or process, or the file is no network namespace) from what the system
// refused. An error without a number is from looking at what has been opened.
func wrongNamespace(err error) error {
	var number unix.Errno
	if errors.As(err, &number) && !slices.Contains(noNamespace, number) {
		return refused(err)
	}
	return err
}
