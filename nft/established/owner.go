package established

import (
	"os"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/nft/owner"
	"github.com/sluice-mesh/sluice/nft/sockdiag"
	"github.com/sluice-mesh/sluice/rules"
)

// ownerIDs finds the users and groups of sockets, as ids of the user namespace that owns the
// network namespace. Rules compare these ids.
type ownerIDs struct {
	groups groups
	maps   owner.Maps
}

// newOwnerIDs reads the id maps of the namespace.
func newOwnerIDs(ns *netns.NS, procDir string, deadline time.Time) *ownerIDs {
	return &ownerIDs{
		groups: groups{
			procDir: procDir, ns: ns.ID(), deadline: deadline, wanted: map[uint32]bool{},
		},
		maps: owner.MapsOf(ns, procDir),
	}
}

// addWanted makes gid find the group of a socket. A socket without an inode has no group.
func (o *ownerIDs) addWanted(s *sockdiag.Properties) {
	if s.INode != 0 {
		o.groups.wanted[s.INode] = true
	}
}

// uid returns the user of a socket. ok is false if the user is unknown.
func (o *ownerIDs) uid(s *sockdiag.Properties) (uid uint32, ok bool) {
	if s.INode == 0 {
		return 0, false
	}
	inside, err := o.maps.Inside(rules.Owner{UID: s.UID})
	return inside.UID, err == nil
}

// gid returns the group of a socket. ok is false if the group is unknown.
func (o *ownerIDs) gid(s *sockdiag.Properties) (gid uint32, ok bool) {
	if s.INode == 0 || o.maps.Err() != nil {
		return 0, false
	}
	gid, ok = o.groups.gid(s.INode)
	inside, _ := o.maps.Inside(rules.Owner{GID: gid})
	return inside.GID, ok
}

// groups maps the inode numbers of the wanted sockets to their groups, which it reads from the
// sockets' files in the node's /proc. It scans the processes of the namespace on the first lookup.
// If a socket is missing, it scans all other processes too, because a process can pass a socket to
// a process of another namespace. Reading the files of other processes needs CAP_SYS_PTRACE.
type groups struct {
	procDir string // empty if groups are unknown
	ns      netns.ID
	// deadline is the time at which a scan ends. The groups that it has not found are unknown.
	deadline time.Time
	scans    int // 1 after the scan of the namespace's processes, 2 after the scan of all others
	// wanted contains the inode numbers of the sockets whose groups are recorded.
	wanted map[uint32]bool
	gids   map[uint32]uint32
}

// gid returns the group of the socket with the inode number. ok is false if the group is unknown.
func (g *groups) gid(inode uint32) (gid uint32, ok bool) {
	for ; g.scans < 2; g.scans++ {
		if gid, ok = g.gids[inode]; ok {
			return gid, true
		}
		g.scan(g.scans == 0)
	}
	gid, ok = g.gids[inode]
	return gid, ok
}

// scan records the groups of the sockets of all processes in the namespace if inside is true, and
// of all other processes otherwise.
func (g *groups) scan(inside bool) {
	if g.gids == nil {
		g.gids = map[uint32]uint32{}
	}
	if g.procDir == "" {
		return
	}
	entries, _ := os.ReadDir(g.procDir) // after an error the groups are unknown
	for _, e := range entries {
		if time.Now().After(g.deadline) {
			return
		}
		process := filepath.Join(g.procDir, e.Name())
		if _, err := strconv.Atoi(e.Name()); err != nil {
			continue
		}
		id, err := netns.IDOfFile(filepath.Join(process, "ns/net"))
		if err == nil && (id == g.ns) == inside {
			g.recordSockets(process)
		}
	}
}

// recordSockets records the groups of the sockets of a process with the /proc directory dir.
func (g *groups) recordSockets(dir string) {
	for file := range owner.Descriptors(dir) {
		if time.Now().After(g.deadline) {
			return
		}
		var st unix.Stat_t
		if unix.Stat(file, &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFSOCK &&
			g.wanted[uint32(st.Ino)] {
			g.gids[uint32(st.Ino)] = st.Gid
		}
	}
}
