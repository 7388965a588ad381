package dirwatch

import (
	"fmt"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// An instance is one of inotify(7). It keeps no paths: a directory is known by the descriptor that
// the kernel gives it, the same under all its names and wherever it is moved. A book of paths would
// be wrong as soon as two directories take each other's names.
type instance struct {
	fd     int
	file   *os.File // of fd
	reader sync.WaitGroup
}

// changes are all events that tell of one.
const changes = unix.IN_CREATE | unix.IN_MODIFY | unix.IN_ATTRIB | unix.IN_DELETE | unix.IN_DELETE_SELF |
	unix.IN_MOVED_FROM | unix.IN_MOVED_TO | unix.IN_MOVE_SELF

// open returns an instance that calls wake of each change, from a goroutine of its own.
func open(wake func()) (*instance, error) {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("make an inotify instance: %w", err)
	}
	i := &instance{fd: fd, file: os.NewFile(uintptr(fd), "inotify")}
	i.reader.Go(func() { i.read(wake) })
	return i, nil
}

// watch makes sure that a directory is watched, and returns its descriptor.
func (i *instance) watch(dir string) (descriptor int, err error) {
	descriptor, err = unix.InotifyAddWatch(i.fd, dir, changes)
	if err != nil {
		return 0, &os.PathError{Op: "watch", Path: dir, Err: err}
	}
	return descriptor, nil
}

// drop ends the watch of a directory. That of one that was removed has ended.
func (i *instance) drop(descriptor int) { _, _ = unix.InotifyRmWatch(i.fd, uint32(descriptor)) }

// read passes events on. What they say does not matter, nor whether some are lost: whoever is woken
// looks at everything.
func (i *instance) read(wake func()) {
	buffer := make([]byte, 4096) // has room for some events: one is at most 16 bytes and a name (inotify(7))
	for {
		if _, err := i.file.Read(buffer); err != nil {
			return // closed: a read of what has room and is waited for fails for no other reason
		}
		wake()
	}
}

// close ends all watches: wake is not called any more when it returns.
func (i *instance) close() {
	_ = i.file.Close() // nothing depends on it any more
	i.reader.Wait()
}
