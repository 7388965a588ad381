package established

import (
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/nft/netns"
)

// groups finds the groups of sockets by the numbers of their inodes: those of their files in the
// node's /proc. It looks at the processes of the namespace when it is first asked, and at all
// others when a socket belongs to none of them: a process may have got the socket from another. To
// look at the files of other processes takes CAP_SYS_PTRACE.
type groups struct {
	procDir string // empty if there is none
	ns      netns.ID
	looked  int // 1 after a look at the processes of the namespace, 2 after one at all
	found   map[uint32]uint32
}

// of returns the group of a socket, if it can be known.
func (g *groups) of(inode uint32) (gid uint32, ok bool) {
	for ; g.looked < 2; g.looked++ {
		if gid, ok = g.found[inode]; ok {
			return gid, true
		}
		g.look(g.looked == 0)
	}
	gid, ok = g.found[inode]
	return gid, ok
}

// look collects the sockets of the processes inside the namespace, or of the processes outside.
func (g *groups) look(inside bool) {
	if g.found == nil {
		g.found = map[uint32]uint32{}
	}
	if g.procDir == "" {
		return
	}
	entries, _ := os.ReadDir(g.procDir) // a /proc that cannot be read tells nothing
	for _, e := range entries {
		process := filepath.Join(g.procDir, e.Name())
		var st unix.Stat_t
		if _, err := strconv.Atoi(e.Name()); err != nil || unix.Stat(filepath.Join(process, "ns/net"), &st) != nil {
			continue
		}
		if (netns.ID{Dev: st.Dev, Ino: st.Ino} == g.ns) == inside {
			g.collect(filepath.Join(process, "fd"))
		}
	}
}

// collect collects the sockets of a process.
func (g *groups) collect(dir string) {
	files, _ := os.ReadDir(dir)
	for _, f := range files {
		var st unix.Stat_t
		if unix.Stat(filepath.Join(dir, f.Name()), &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFSOCK {
			g.found[uint32(st.Ino)] = st.Gid
		}
	}
}
