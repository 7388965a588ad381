package doctor

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// A RawSocket is a packet socket or a raw IP socket.
type RawSocket struct {
	// Packet reports whether the socket is a packet socket (AF_PACKET), not a raw IP socket.
	Packet bool
	UID    uint32
	// Processes are the visible processes that have the socket open, as NAME[PID].
	Processes []string

	inode string
}

// readRawSockets returns the packet sockets and raw IP sockets of the thread's namespace, without
// their processes.
func readRawSockets() ([]RawSocket, error) {
	const uidColumn = 7
	var sockets []RawSocket
	for _, file := range []struct {
		name        string
		packet      bool
		inodeColumn int
	}{{"packet", true, 8}, {"raw", false, 9}, {"raw6", false, 9}} {
		path := "/proc/thread-self/net/" + file.name
		text, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue // the kernel has no such sockets
		}
		if err != nil {
			return sockets, err
		}
		for i, line := range strings.Split(strings.TrimSpace(string(text)), "\n") {
			columns := strings.Fields(line)
			if i == 0 || len(columns) <= file.inodeColumn {
				continue // the first line contains the names of the columns
			}
			uid, err := strconv.ParseUint(columns[uidColumn], 10, 32)
			if err != nil {
				return sockets, fmt.Errorf("%s: line %d: %w", path, i+1, err)
			}
			sockets = append(sockets, RawSocket{
				Packet: file.packet, UID: uint32(uid), inode: columns[file.inodeColumn],
			})
		}
	}
	return sockets, nil
}

// findProcesses sets the processes that have the sockets open. proc is a /proc directory.
func findProcesses(sockets []RawSocket, proc string) {
	if len(sockets) == 0 {
		return
	}
	byTarget := make(map[string]*RawSocket, len(sockets)) // by the target of a link in /proc/PID/fd
	for i := range sockets {
		byTarget["socket:["+sockets[i].inode+"]"] = &sockets[i]
	}
	files, _ := filepath.Glob(filepath.Join(proc, "[0-9]*/fd/*")) // the pattern is valid
	for _, file := range files {
		target, err := os.Readlink(file)
		if err != nil || byTarget[target] == nil {
			continue
		}
		dir := filepath.Dir(filepath.Dir(file))
		comm, _ := os.ReadFile(filepath.Join(dir, "comm"))
		process := strings.TrimSpace(string(comm)) + "[" + filepath.Base(dir) + "]"
		if s := byTarget[target]; !slices.Contains(s.Processes, process) {
			s.Processes = append(s.Processes, process)
		}
	}
}
