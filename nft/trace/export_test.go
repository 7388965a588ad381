package trace

import "golang.org/x/sys/unix"

// DupSocket returns a copy of the descriptor of the log's socket.
func (l *Log) DupSocket() (fd int, err error) {
	controlErr := l.events.Control(func(socket int) error {
		fd, err = unix.FcntlInt(uintptr(socket), unix.F_DUPFD_CLOEXEC, 0)
		return err
	})
	return fd, controlErr
}

// HasPackets reports whether the collector contains packets.
func (c *Collector) HasPackets() bool { return len(c.packets) > 0 }
