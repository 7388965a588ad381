package bpf

import (
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// This file encodes calls of bpf(2) without github.com/cilium/ebpf. That library would add 1.1 MB
// to the rules command, and 0.35 ms to the start of each of its subcommands, such as rules apply.

// maxIDs is the maximum number of IDs that one call returns. A hook has at most 64 programs
// (BPF_CGROUP_MAX_PROGS, BPF_MPROG_MAX). If a program has more maps, the others are not read.
const maxIDs = 64

// queryAttr is the part of union bpf_attr for BPF_PROG_QUERY.
type queryAttr struct {
	target, attachType, _, _ uint32
	programs                 uint64
	count, _                 uint32
	_, _, _, _               uint64 // prog_attach_flags, link_ids, link_attach_flags, revision
}

// queryPrograms returns the IDs of the programs at a hook of a target, which is a file descriptor
// or the index of an interface.
func queryPrograms(target int, attachType uint32) ([]uint32, error) {
	ids := new([maxIDs]uint32)
	var pinner runtime.Pinner
	pinner.Pin(ids)
	defer pinner.Unpin()
	attr := queryAttr{
		target: uint32(target), attachType: attachType, programs: pointer(ids), count: maxIDs,
	}
	if _, err := bpfCall(unix.BPF_PROG_QUERY, &attr); err != nil {
		return nil, err
	}
	return ids[:min(attr.count, maxIDs)], nil
}

// idAttr is the part of union bpf_attr for BPF_PROG_GET_FD_BY_ID and BPF_MAP_GET_FD_BY_ID.
type idAttr struct{ id, _, _ uint32 }

// infoAttr is the part of union bpf_attr for BPF_OBJ_GET_INFO_BY_FD.
type infoAttr struct {
	fd, length uint32
	info       uint64
}

// programInfo contains the first fields of struct bpf_prog_info.
type programInfo struct {
	_, _          uint32
	_             [8]byte
	_, _          uint32
	_, _, _       uint64
	uid, mapCount uint32
	maps          uint64
	name          [16]byte
}

// mapInfo contains the first fields of struct bpf_map_info.
type mapInfo struct {
	kind uint32
	_    [5]uint32
	name [16]byte
}

// readInfo reads the info of the object with the ID. openCommand is the command of bpf(2) that
// opens the object.
func readInfo[T programInfo | mapInfo](openCommand int, id uint32, info *T) error {
	fd, err := bpfCall(openCommand, &idAttr{id: id})
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(fd) }()
	var pinner runtime.Pinner
	pinner.Pin(info)
	defer pinner.Unpin()
	_, err = bpfCall(unix.BPF_OBJ_GET_INFO_BY_FD, &infoAttr{
		fd: uint32(fd), length: uint32(unsafe.Sizeof(*info)), info: pointer(info),
	})
	return err
}

// readProgram returns the info of a program and the IDs of its maps.
func readProgram(id uint32) (programInfo, []uint32, error) {
	ids := new([maxIDs]uint32)
	var pinner runtime.Pinner
	pinner.Pin(ids)
	defer pinner.Unpin()
	info := &programInfo{maps: pointer(ids), mapCount: maxIDs}
	if err := readInfo(unix.BPF_PROG_GET_FD_BY_ID, id, info); err != nil {
		return programInfo{}, nil, err
	}
	return *info, ids[:min(info.mapCount, maxIDs)], nil
}

// readMap returns the info of a map.
func readMap(id uint32) (mapInfo, error) {
	info := new(mapInfo)
	err := readInfo(unix.BPF_MAP_GET_FD_BY_ID, id, info)
	return *info, err
}

// bpfCall calls bpf(2) and returns its result. The caller must pin the memory whose addresses
// *attr contains.
func bpfCall[T queryAttr | idAttr | infoAttr](command int, attr *T) (int, error) {
	n, _, errno := unix.Syscall(unix.SYS_BPF, uintptr(command), uintptr(unsafe.Pointer(attr)),
		unsafe.Sizeof(*attr))
	if errno != 0 {
		return 0, errno
	}
	return int(n), nil
}

// pointer returns an address in the format of union bpf_attr.
func pointer[T any](to *T) uint64 { return uint64(uintptr(unsafe.Pointer(to))) }
