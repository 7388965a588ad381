package xt

import "github.com/sluice-mesh/sluice/rules"

// zoneAt is where struct xt_ct_target_info has the zone: behind flags, and before events, a helper and in later revisions a timeout.
const zoneAt = 2

// zoneSizes are those of struct xt_ct_target_info and _v1 by revision, and zoneKernel where in them a pointer begins that only the
// kernel uses.
var (
	zoneSizes  = [...]int{40, 72, 72}
	zoneKernel = [...]int{32, 64, 64}
)

// decodeZone reads a CT that chooses a zone and no more.
func decodeZone(revision uint32, info []byte) rules.Action {
	if len(info) < zoneSizes[revision] || native.Uint16(info) != 0 {
		return nil
	}
	for _, b := range info[zoneAt+2 : zoneKernel[revision]] {
		if b != 0 {
			return nil
		}
	}
	return rules.SetZone{Zone: native.Uint16(info[zoneAt:])}
}

func encodeZone(a rules.SetZone) Extension {
	data := make([]byte, zoneSizes[0])
	native.PutUint16(data[zoneAt:], a.Zone)
	return Extension{Name: "CT", Data: data}
}
