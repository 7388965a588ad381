package doctor

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/sluice-mesh/sluice/nft/owner"
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

// maxRawSockets is the maximum number of packet and raw sockets that are read, and maxDescriptors
// the maximum number of file descriptors that are searched for their processes. A pod can open
// hundreds of thousands of sockets. They are variables for tests.
var (
	maxRawSockets  = 1 << 14
	maxDescriptors = 1 << 20
)

// readRawSockets returns the packet sockets and raw IP sockets of the thread's namespace, without
// their processes. If there are more than maxRawSockets, it returns only the first ones, and an
// error.
func readRawSockets() (sockets []RawSocket, err error) {
	for _, list := range []socketList{{"packet", true, 8}, {"raw", false, 9}, {"raw6", false, 9}} {
		if sockets, err = list.read(sockets); err != nil {
			return sockets, err
		}
	}
	return sockets, nil
}

// A socketList is a list of sockets in /proc/net.
type socketList struct {
	name        string
	packet      bool
	inodeColumn int
}

// read appends the sockets of the list.
func (l socketList) read(sockets []RawSocket) ([]RawSocket, error) {
	const uidColumn = 7
	path := "/proc/thread-self/net/" + l.name
	file, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return sockets, nil // the kernel has no such sockets
	}
	if err != nil {
		return sockets, err
	}
	defer func() { _ = file.Close() }()
	lines := bufio.NewScanner(file)
	lines.Scan() // the names of the columns
	for i := 2; lines.Scan(); i++ {
		columns := strings.Fields(lines.Text())
		if len(columns) <= l.inodeColumn {
			continue
		}
		uid, err := strconv.ParseUint(columns[uidColumn], 10, 32)
		if err != nil {
			return sockets, fmt.Errorf("%s: line %d: %w", path, i, err)
		}
		if len(sockets) == maxRawSockets {
			return sockets, fmt.Errorf("there are more than %d", maxRawSockets)
		}
		sockets = append(sockets, RawSocket{
			Packet: l.packet, UID: uint32(uid), inode: columns[l.inodeColumn],
		})
	}
	return sockets, lines.Err()
}

// findProcesses sets the processes that have the sockets open. proc is a /proc directory. It
// returns an error if it has not searched all processes, because they have more than maxDescriptors
// file descriptors.
func findProcesses(sockets []RawSocket, proc string) error {
	if len(sockets) == 0 {
		return nil
	}
	byTarget := make(map[string]*RawSocket, len(sockets)) // by the target of a link in /proc/PID/fd
	for i := range sockets {
		byTarget["socket:["+sockets[i].inode+"]"] = &sockets[i]
	}
	searched := 0
	for _, dir := range owner.Processes(proc) {
		for file := range owner.Descriptors(dir) {
			if searched++; searched > maxDescriptors {
				return fmt.Errorf("the processes of some sockets are unknown: all processes together "+
					"have more than %d file descriptors", maxDescriptors)
			}
			target, err := os.Readlink(file)
			if err != nil || byTarget[target] == nil {
				continue
			}
			name := owner.ProcessName(dir)
			if s := byTarget[target]; !slices.Contains(s.Processes, name) {
				s.Processes = append(s.Processes, name)
			}
		}
	}
	return nil
}
