package dirwatch

import (
	"fmt"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// An instance is an instance of inotify(7). It stores no paths, which would be wrong after two
// directories exchange their names. A directory is identified by its watch descriptor, which does
// not depend on the directory's path.
type instance struct {
	fd     int
	file   *os.File // of fd
	reader sync.WaitGroup
}

// changeEvents contains all inotify events that report a change.
const changeEvents = unix.IN_CREATE | unix.IN_MODIFY | unix.IN_ATTRIB | unix.IN_DELETE |
	unix.IN_DELETE_SELF | unix.IN_MOVED_FROM | unix.IN_MOVED_TO | unix.IN_MOVE_SELF

// open returns an instance that calls wake after changes, in its own goroutine.
func open(wake func()) (*instance, error) {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("create an inotify instance: %w", err)
	}
	i := &instance{fd: fd, file: os.NewFile(uintptr(fd), "inotify")}
	i.reader.Go(func() { i.read(wake) })
	return i, nil
}

// watch watches a directory, and returns its watch descriptor.
func (i *instance) watch(dir string) (descriptor int, err error) {
	descriptor, err = unix.InotifyAddWatch(i.fd, dir, changeEvents)
	if err != nil {
		return 0, &os.PathError{Op: "watch", Path: dir, Err: err}
	}
	return descriptor, nil
}

// unwatch removes the watch of a directory. Errors are ignored, because the kernel removes the
// watch of a removed directory itself.
func (i *instance) unwatch(descriptor int) { _, _ = unix.InotifyRmWatch(i.fd, uint32(descriptor)) }

// read reads events and calls wake after each read. The content of events and lost events do not
// matter, because the user of the watch then checks all files.
func (i *instance) read(wake func()) {
	// An event has 16 bytes and a name of at most 256 bytes (inotify(7)).
	buffer := make([]byte, 4096)
	for {
		if _, err := i.file.Read(buffer); err != nil {
			return // closed: a blocking read into a large enough buffer fails for no other reason
		}
		wake()
	}
}

// close removes all watches. Wake is not called after close returns.
func (i *instance) close() {
	_ = i.file.Close() // nothing was written
	i.reader.Wait()
}
