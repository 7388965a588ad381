package netnstest

import (
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/nft/internal/thread"
)

// OnNewThread calls fn on a thread that ends afterwards, so that fn may change attributes of the
// thread. The thread is not the main thread of the process, whose attributes /proc/self shows to
// other tests.
func OnNewThread(fn func() error) error {
	return thread.Run(thread.Work{Enter: func() error { return nil }, Do: fn})
}

// DropCapabilities removes the capabilities from the effective capabilities of the calling thread.
func DropCapabilities(capabilities ...int) error {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		return fmt.Errorf("capget: %w", err)
	}
	for _, c := range capabilities {
		data[c/32].Effective &^= 1 << (c % 32)
	}
	if err := unix.Capset(&header, &data[0]); err != nil {
		return fmt.Errorf("capset: %w", err)
	}
	return nil
}

// ChangeUser changes the effective user of the calling thread. The file system user, which decides
// about permissions for files, remains root.
func ChangeUser(uid int) error {
	// The functions of unix and syscall change the user of all threads.
	if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, ^uintptr(0), uintptr(uid),
		^uintptr(0)); errno != 0 {
		return fmt.Errorf("setresuid: %w", errno)
	}
	if err := unix.Setfsuid(0); err != nil {
		return fmt.Errorf("setfsuid: %w", err)
	}
	return nil
}
