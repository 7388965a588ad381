package filetest

import (
	"errors"
	"io/fs"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// immutable is FS_IMMUTABLE_FL of linux/fs.h.
const immutable = 0x10

// Immutable sets the immutable flag of a file (chattr +i) until the returned function is called or
// the test ends. It needs root.
func Immutable(t *testing.T, path string) (mutable func()) {
	t.Helper()
	setFlag(t, path, immutable, true)
	isImmutable := true
	mutable = func() {
		if isImmutable {
			setFlag(t, path, immutable, false)
		}
		isImmutable = false
	}
	t.Cleanup(mutable)
	return mutable
}

// setFlag sets or clears an inode flag (ioctl_iflags(2)).
func setFlag(t *testing.T, path string, flag int, isSet bool) {
	t.Helper()
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) && !isSet {
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close() //nolint:errcheck // only its flags are changed
	flags, err := unix.IoctlGetInt(int(f.Fd()), unix.FS_IOC_GETFLAGS)
	if err != nil {
		t.Fatal(err)
	}
	if flags |= flag; !isSet {
		flags &^= flag
	}
	if err := unix.IoctlSetPointerInt(int(f.Fd()), unix.FS_IOC_SETFLAGS, flags); err != nil {
		t.Fatalf("set the flags of %s: %v", path, err)
	}
}
