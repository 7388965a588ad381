package xt

import (
	"bytes"

	"github.com/sluice-mesh/sluice/rules"
)

// ctZoneAt is where struct xt_ct_target_info has the zone: behind flags, and before events, a
// helper and in later revisions a timeout.
const ctZoneAt = 2

// ctHelperAt is where the structure has the name of a helper, of at most ctHelperSize bytes.
const ctHelperAt, ctHelperSize = 12, 16

// Flags of struct xt_ct_target_info.
const (
	ctNotrack      = 1 << 0
	ctNotrackAlias = 1 << 1 // written as -j NOTRACK, which means the same
)

// ctSizes are those of struct xt_ct_target_info and _v1 by revision, and ctKernel where in them a
// pointer begins that only the kernel uses.
var (
	ctSizes  = [...]int{40, 72, 72}
	ctKernel = [...]int{32, 64, 64}
)

// decodeCT reads a CT that keeps conntrack from the packet, which nothing else in the structure
// changes, or one that chooses a zone or a helper and no more.
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
	helper, rest, _ := bytes.Cut(info[ctHelperAt:ctHelperAt+ctHelperSize], []byte{0})
	for _, others := range [][]byte{info[ctZoneAt+2 : ctHelperAt], rest, info[ctHelperAt+ctHelperSize : ctKernel[revision]]} {
		if len(bytes.Trim(others, "\x00")) != 0 {
			return nil
		}
	}
	return rules.SetZone{Zone: native.Uint16(info[ctZoneAt:]), Helper: string(helper)}
}

func encodeCT(flags, zone uint16) Extension {
	data := make([]byte, ctSizes[0])
	native.PutUint16(data, flags)
	native.PutUint16(data[ctZoneAt:], zone)
	return Extension{Name: "CT", Data: data}
}
