package sandbox

import (
	"time"

	"golang.org/x/sys/unix"
)

// ticks is how many of them a second has in /proc (USER_HZ, which is the same on all architectures
// that Go knows).
const ticks = 100

// created returns when the namespace at a path of the finder was made, by the node's clock; the
// zero time if that is not known. For one that is mounted the kernel says it. Of one that only a
// process shows, the process is not older than the pod.
func (s *search) created(path string) time.Time {
	pid, ok := s.proc.process(path)
	if !ok {
		var st unix.Stat_t
		if err := unix.Stat(path, &st); err != nil {
			return time.Time{}
		}
		return time.Unix(st.Ctim.Unix())
	}
	started, err := s.proc.started(pid)
	if err != nil {
		return time.Time{}
	}
	var sinceBoot unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &sinceBoot); err != nil {
		return time.Time{}
	}
	boot := time.Now().Add(-time.Duration(sinceBoot.Nano()))
	return boot.Add(time.Duration(started) * (time.Second / ticks))
}
