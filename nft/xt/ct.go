package xt

import (
	"bytes"

	"github.com/sluice-mesh/sluice/rules"
)

// Offsets in struct xt_ct_target_info, and the size of the name of a helper. The structure contains
// flags, a zone, events, a helper, and in later revisions a timeout.
const (
	ctZoneOffset   = 2
	ctHelperOffset = 12
	ctHelperSize   = 16
)

// Flags of struct xt_ct_target_info.
const (
	ctNotrack      = 1 << 0
	ctNotrackAlias = 1 << 1 // iptables sets it for -j NOTRACK, which is equivalent
)

// ctSizes contains the sizes of struct xt_ct_target_info and _v1 by revision, and ctUserSizes the
// sizes without the final pointer, which only the kernel uses.
var (
	ctSizes     = [...]int{40, 72, 72}
	ctUserSizes = [...]int{32, 64, 64}
)

// decodeCT decodes a CT that disables tracking, or that sets only a zone and a helper. If the flags
// disable tracking, the kernel ignores the other fields.
func decodeCT(revision uint32, info []byte) rules.Action {
	if len(info) < ctSizes[revision] {
		return nil
	}
	switch native.Uint16(info) {
	case ctNotrack, ctNotrack | ctNotrackAlias:
		return rules.Notrack{}
	case 0:
	default:
		return nil
	}
	helper, rest, _ := bytes.Cut(info[ctHelperOffset:ctHelperOffset+ctHelperSize], []byte{0})
	for _, others := range [][]byte{
		info[ctZoneOffset+2 : ctHelperOffset], rest,
		info[ctHelperOffset+ctHelperSize : ctUserSizes[revision]],
	} {
		if len(bytes.Trim(others, "\x00")) != 0 {
			return nil
		}
	}
	return rules.SetZone{Zone: native.Uint16(info[ctZoneOffset:]), Helper: string(helper)}
}

// encodeCT encodes a CT without a helper.
func encodeCT(flags, zone uint16) Extension {
	data := make([]byte, ctSizes[0])
	native.PutUint16(data, flags)
	native.PutUint16(data[ctZoneOffset:], zone)
	return Extension{Name: "CT", Data: data}
}
