package sandbox

import (
	"time"

	"golang.org/x/sys/unix"
)

// ticksPerSecond is the number of clock ticks per second in /proc (USER_HZ, which is the same on
// all architectures of Go).
const ticksPerSecond = 100

// creationTime returns the creation time of the network namespace at a path, by the node's clock;
// zero if unknown. For a mounted namespace this is the file's change time. For a namespace known
// only from a process, it is the start time of the process.
func (s *search) creationTime(path string) time.Time {
	pid, ok := s.proc.process(path)
	if !ok {
		var st unix.Stat_t
		if err := unix.Stat(path, &st); err != nil {
			return time.Time{}
		}
		return time.Unix(st.Ctim.Unix())
	}
	started, err := s.proc.startTime(pid)
	if err != nil {
		return time.Time{}
	}
	var sinceBoot unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &sinceBoot); err != nil {
		return time.Time{}
	}
	boot := time.Now().Add(-time.Duration(sinceBoot.Nano()))
	return boot.Add(time.Duration(started) * (time.Second / ticksPerSecond))
}
