package xt

import (
	"errors"
	"strings"

	"github.com/sluice-mesh/sluice/rules"
)

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
		return Extension{}, errors.New("a match of a cgroup must have its path")
	case len(m.Path) >= cgroupPathLength:
		return Extension{}, errors.New("the path of the cgroup is longer than 511 bytes")
	}
	data := make([]byte, cgroupSize)
	data[cgroupHasPath] = 1
	copy(data[cgroupPath:], m.Path)
	return Extension{Name: "cgroup", Revision: 2, Data: data}, nil
}
