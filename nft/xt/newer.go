package xt

import "slices"

// Newer returns the target x, which [EncodeTarget] has encoded, in newer revisions, the newest
// first. iptables programs print only the newest revision that they and the kernel support.
func Newer(x Extension) []Extension {
	switch (key{x.Name, x.Revision}) {
	case key{"CONNMARK", 1}: // revision 2 since Linux 4.17
		data := make([]byte, connmarkSize)
		copy(data, x.Data[:12])
		data[connmarkModeOffset[2]] = x.Data[connmarkModeOffset[1]]
		return []Extension{{Name: x.Name, Revision: 2, Data: data}}
	case key{"CT", 0}: // revision 1 since Linux 3.4, revision 2 since 4.3
		data := make([]byte, ctSizes[2])
		copy(data, x.Data[:ctUserSizes[0]])
		return []Extension{
			{Name: x.Name, Revision: 2, Data: data},
			{Name: x.Name, Revision: 1, Data: slices.Clone(data)},
		}
	case key{"DNAT", 0}, key{"SNAT", 0}: // revision 1 since Linux 3.7, revision 2 since 4.18
		r, _ := decodeRange4(x.Data) // EncodeTarget encodes only valid ranges
		revision1 := Extension{Name: x.Name, Revision: 1, Data: r.encode()}
		return append(Newer(revision1), revision1)
	case key{"DNAT", 1}, key{"SNAT", 1}:
		data := append(slices.Clone(x.Data), make([]byte, rangeSize2-rangeSize)...)
		return []Extension{{Name: x.Name, Revision: 2, Data: data}}
	}
	return nil
}
