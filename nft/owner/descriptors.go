package owner

import (
	"iter"
	"os"
	"path/filepath"
	"strings"
)

// Processes returns the directories of the processes in proc, which is a /proc directory.
func Processes(proc string) []string {
	dirs, _ := filepath.Glob(filepath.Join(proc, "[0-9]*")) // the pattern is valid
	return dirs
}

// ProcessName returns NAME[PID] for the process with the /proc directory dir.
func ProcessName(dir string) string {
	comm, _ := os.ReadFile(filepath.Join(dir, "comm"))
	return strings.TrimSpace(string(comm)) + "[" + filepath.Base(dir) + "]"
}

// descriptorBatch is the number of descriptors that are listed at a time: a process can have a
// million.
const descriptorBatch = 1 << 10

// Descriptors iterates over the paths of the open file descriptors of the process with the /proc
// directory dir, in any order. If they cannot be listed, or the process ends, the rest is missing.
func Descriptors(dir string) iter.Seq[string] {
	return func(yield func(string) bool) {
		fds := filepath.Join(dir, "fd")
		d, err := os.Open(fds)
		if err != nil {
			return
		}
		defer func() { _ = d.Close() }()
		for {
			names, err := d.Readdirnames(descriptorBatch)
			for _, name := range names {
				if !yield(filepath.Join(fds, name)) {
					return
				}
			}
			if err != nil { // io.EOF, or the process has ended
				return
			}
		}
	}
}
