package owner

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/rules"
)

// overflowID represents an id that is not mapped into a user namespace (overflowuid in
// kernel/sys.c).
const overflowID = 65534

// Maps translates the ids of users and groups between the user namespace that owns a network
// namespace (inside) and the user namespace of this process (outside). Rules compare inside ids.
// The zero value translates each id to itself.
type Maps struct {
	users, groups idMap
	err           error // see Err
}

// MapsOf returns the maps for the namespace. It reads them from the directory of a process in
// procDir, a mounted /proc; if procDir is empty, the maps are unknown. Each id is translated to
// itself if the user namespace of this process owns the network namespace, or if the kernel does
// not report the owner.
func MapsOf(ns *netns.NS, procDir string) Maps {
	var m Maps
	m.users, m.groups, m.err = idMaps(ns, procDir)
	return m
}

// Err returns the reason why the maps are unknown, or nil. No id is mapped if they are unknown.
func (m *Maps) Err() error { return m.err }

// Inside returns the owner with inside ids. An id that is not mapped is 65534, as in the kernel.
// The error is the result of Err.
func (m *Maps) Inside(o rules.Owner) (rules.Owner, error) {
	inside := rules.Owner{UID: m.users.inside(int(o.UID)), GID: m.groups.inside(int(o.GID))}
	return inside, m.err
}

// Outside returns the outside ids of the owner. The error is the result of Err, or says that an
// id is not mapped.
func (m *Maps) Outside(o rules.Owner) (uid, gid int, err error) {
	uid, isUIDMapped := m.users.outside(o.UID)
	gid, isGIDMapped := m.groups.outside(o.GID)
	switch {
	case m.err != nil:
		return 0, 0, m.err
	case !isUIDMapped || !isGIDMapped:
		return 0, 0, fmt.Errorf("uid %d gid %d: not mapped into the user namespace", o.UID, o.GID)
	}
	return uid, gid, nil
}

// An idMap translates the ids of users or groups. A nil map translates each id to itself.
type idMap []idRange

// idRange is a line of /proc/PID/uid_map; see user_namespaces(7).
type idRange struct{ inside, outside, count uint32 }

// outside returns the outside id, or false if the id is not mapped.
func (m idMap) outside(id uint32) (int, bool) {
	if m == nil {
		return int(id), true
	}
	for _, r := range m {
		if id >= r.inside && id-r.inside < r.count {
			return int(r.outside + (id - r.inside)), true
		}
	}
	return 0, false
}

// inside returns the inside id. If the id is not mapped, it returns 65534, as the kernel does.
func (m idMap) inside(id int) uint32 {
	if m == nil {
		return uint32(id)
	}
	for _, r := range m {
		if uint32(id) >= r.outside && uint32(id)-r.outside < r.count {
			return r.inside + (uint32(id) - r.outside)
		}
	}
	return overflowID
}

// parseIDMap parses the format of /proc/PID/uid_map.
func parseIDMap(r io.Reader) (idMap, error) {
	m := idMap{}
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		var line idRange
		if _, err := fmt.Sscan(lines.Text(), &line.inside, &line.outside, &line.count); err != nil {
			return nil, fmt.Errorf("id map: %q: %w", lines.Text(), err)
		}
		m = append(m, line)
	}
	return m, lines.Err()
}

// errNoProcess is the error for a user namespace whose id mapping is unknown.
var errNoProcess = errors.New(
	"the network namespace belongs to another user namespace, and /proc has no process of that" +
		" user namespace whose ID maps can be read")

// idMaps returns the maps of user and group ids for the namespace; see [MapsOf]. With an error the
// maps are empty: no id is mapped.
func idMaps(ns *netns.NS, procDir string) (uids, gids idMap, err error) {
	owner, ownerErr := userNamespace(ns)
	own, ownErr := netns.IDOfFile("/proc/thread-self/ns/user")
	switch {
	case errors.Is(ownerErr, unix.EPERM), errors.Is(ownerErr, unix.ENOTTY):
		return nil, nil, nil // the kernel does not report the owner
	case ownerErr != nil || ownErr != nil:
		return idMap{}, idMap{}, errors.Join(ownerErr, ownErr)
	case own == owner:
		return nil, nil, nil
	}
	var links []string
	if procDir != "" {
		links, _ = filepath.Glob(filepath.Join(procDir, "[0-9]*/ns/user"))
	}
	for _, link := range links {
		if found, err := netns.IDOfFile(link); err != nil || found != owner {
			continue
		}
		process := strings.TrimSuffix(link, "/ns/user")
		uids, uidErr := readIDMap(process + "/uid_map")
		gids, gidErr := readIDMap(process + "/gid_map")
		if uidErr == nil && gidErr == nil {
			return uids, gids, nil
		}
	}
	return idMap{}, idMap{}, errNoProcess
}

func readIDMap(path string) (idMap, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	return parseIDMap(file)
}

// userNamespace identifies the user namespace that owns the network namespace.
func userNamespace(ns *netns.NS) (netns.ID, error) {
	var id netns.ID
	err := ns.Do(func() error {
		file, err := unix.Open("/proc/thread-self/ns/net", unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			return fmt.Errorf("open the network namespace: %w", err)
		}
		defer func() { _ = unix.Close(file) }()
		// The error is EPERM if the owner is not a descendant of the user namespace of this process
		// (ns_get_owner in kernel/user_namespace.c).
		owner, err := unix.IoctlRetInt(file, unix.NS_GET_USERNS)
		if err != nil {
			return fmt.Errorf("ask for the owner of network namespace %s: %w", ns, err)
		}
		defer func() { _ = unix.Close(owner) }()
		id, err = netns.IDOfFD(owner)
		return err
	})
	return id, err
}
