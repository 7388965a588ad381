package route

import (
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/nft/netns"
)

// LoopbackName returns the name of the namespace's loopback interface. A process with CAP_NET_ADMIN
// can rename the interface, and give the name lo to another interface.
func LoopbackName(ns *netns.NS) (name string, err error) {
	read := func() error {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer func() { _ = unix.Close(fd) }()
		request, err := unix.NewIfreq("")
		if err != nil {
			return err
		}
		request.SetUint32(netns.LoopbackIndex)
		err = unix.IoctlIfreq(fd, unix.SIOCGIFNAME, request)
		name = request.Name()
		return err
	}
	if err := ns.Do(read); err != nil {
		return "", fmt.Errorf("read the name of the loopback interface: %w", err)
	}
	return name, nil
}
