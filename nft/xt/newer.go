package xt

import "slices"

// Newer returns the same target as [EncodeTarget] in newer revisions, the newest first. iptables
// programs print only the newest revision that they and the kernel support.
func Newer(x Extension) []Extension {
	switch (key{x.Name, x.Revision}) {
	case key{"CONNMARK", 1}: // revision 2 is of Linux 4.17
		data := make([]byte, connmarkSize)
		copy(data, x.Data[:12])
		data[connmarkModeOffset[2]] = x.Data[connmarkModeOffset[1]]
		return []Extension{{Name: x.Name, Revision: 2, Data: data}}
	case key{"CT", 0}: // revision 2 is of Linux 4.3, revision 1 of 3.4
		data := make([]byte, ctSizes[2])
		copy(data, x.Data[:ctUserSizes[0]])
		return []Extension{
			{Name: x.Name, Revision: 2, Data: data},
			{Name: x.Name, Revision: 1, Data: slices.Clone(data)},
		}
	case key{"DNAT", 0}, key{"SNAT", 0}: // revision 2 is of Linux 4.18, revision 1 of 3.7
		r, _ := decodeRange4(x.Data) // valid, because it is from EncodeTarget
		older := Extension{Name: x.Name, Revision: 1, Data: r.encode()}
		return append(Newer(older), older)
	case key{"DNAT", 1}, key{"SNAT", 1}:
		data := append(slices.Clone(x.Data), make([]byte, rangeSize2-rangeSize)...)
		return []Extension{{Name: x.Name, Revision: 2, Data: data}}
	}
	return nil
}
