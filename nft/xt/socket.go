package xt

import (
	"errors"
	"strings"

	"github.com/sluice-mesh/sluice/rules"
)

// Flags of struct xt_socket_mtinfo1, 2 and 3. A third flag, XT_SOCKET_RESTORESKMARK, sets the mark
// of the packet.
const (
	socketTransparent = 1 << 0
	socketNoWildcard  = 1 << 1
)

// decodeSocket decodes a match of transparent sockets.
func decodeSocket(info []byte) ([]rules.Match, bool) {
	if len(info) < 1 {
		return nil, false
	}
	switch info[0] {
	case socketTransparent:
		return []rules.Match{rules.MatchSocket{}}, true
	case socketTransparent | socketNoWildcard:
		return []rules.Match{rules.MatchSocket{Kind: "nowildcard"}}, true
	}
	return nil, false
}

// SocketText returns the text of a match socket that the model does not represent. flags contains
// the bits of SocketOptions.
func SocketText(flags uint8) string {
	options := namesOfBits(uint32(flags), SocketOptions[:])
	return strings.Join(append([]string{"-m socket"}, options...), " ")
}

// SocketOptions are the options of the match socket in the order of their bits
// (XT_SOCKET_TRANSPARENT and others).
var SocketOptions = [...]string{"--transparent", "--nowildcard", "--restore-skmark"}

// Offsets and the size of struct xt_cgroup_info_v2 (linux/netfilter/xt_cgroup.h). The structure
// ends with a pointer that only the kernel uses.
const (
	cgroupHasPath    = 0
	cgroupHasClass   = 1
	cgroupInvertPath = 2
	cgroupPath       = 4
	cgroupPathLength = 512
	cgroupSize       = 528
)

// decodeCgroup decodes a match of a path, which the kernel resolved when the rule was created.
func decodeCgroup(info []byte) ([]rules.Match, bool) {
	if len(info) < cgroupPath+cgroupPathLength || info[cgroupHasPath] == 0 ||
		info[cgroupHasClass] != 0 || info[cgroupInvertPath] != 0 {
		return nil, false
	}
	m := rules.CgroupOf(textBeforeZero(info[cgroupPath : cgroupPath+cgroupPathLength]))
	return []rules.Match{m}, m.Path != ""
}

// encodeCgroup encodes a match of a path.
func encodeCgroup(m rules.MatchCgroup) (Extension, error) {
	switch {
	case m.Path == "" || strings.ContainsRune(m.Path, 0):
		return Extension{}, errors.New("the path of the cgroup is empty or contains a NUL byte")
	case len(m.Path) >= cgroupPathLength:
		return Extension{}, errors.New("the path of the cgroup is longer than 511 bytes")
	}
	data := make([]byte, cgroupSize)
	data[cgroupHasPath] = 1
	copy(data[cgroupPath:], m.Path)
	return Extension{Name: "cgroup", Revision: 2, Data: data}, nil
}
