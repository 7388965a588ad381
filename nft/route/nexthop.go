package route

import (
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/nft/internal/nlmsg"
	"github.com/sluice-mesh/sluice/nft/netns"
)

// A nextHopObject is an object to which routes can refer instead of having next hops. A group is an
// object of several next hops.
type nextHopObject struct {
	isOverLo bool   // the interface of a next hop is the loopback interface
	encap    uint16 // the type of an encapsulation of a next hop; 0: none
}

const (
	sizeofNextHop      = 8 // struct nhmsg
	sizeofNextHopGroup = 8 // struct nexthop_grp, which begins with the number of an object
)

// readNextHops returns the nexthop objects of the namespace by their numbers.
func (c conn) readNextHops() (map[uint32]nextHopObject, error) {
	type group struct {
		id      uint32
		members []uint32
	}
	var objects map[uint32]nextHopObject
	groups, err := listAll("nexthop objects", func() (groups []group, err error) {
		objects = map[uint32]nextHopObject{}
		request := nl.NewNetlinkRequest(unix.RTM_GETNEXTHOP, unix.NLM_F_DUMP)
		request.AddRawData(make([]byte, sizeofNextHop))
		members := 0
		err = c.exchange(request.Serialize(), func(m nlmsg.Message) error {
			if m.Type != unix.RTM_NEWNEXTHOP || len(m.Body) < sizeofNextHop {
				return nil
			}
			a := nlmsg.Attributes(m.Body[sizeofNextHop:])
			id, _ := a.HostNumber(unix.NHA_ID)
			device, _ := a.HostNumber(unix.NHA_OIF)
			objects[id] = nextHopObject{
				isOverLo: device == netns.LoopbackIndex,
				encap:    uint16(hostNumber(a.Get(unix.NHA_ENCAP_TYPE))),
			}
			if value := a.Get(unix.NHA_GROUP); len(value) >= sizeofNextHopGroup {
				g := group{id: id}
				for ; len(value) >= sizeofNextHopGroup; value = value[sizeofNextHopGroup:] {
					g.members = append(g.members, native.Uint32(value))
				}
				members += len(g.members)
				groups = append(groups, g)
			}
			if len(objects)+members > maxObjects {
				return tooMany("nexthop objects", maxObjects)
			}
			return nil
		})
		return groups, err
	})
	// A group does not contain groups (nh_check_attr_group in net/ipv4/nexthop.c).
	for _, g := range groups {
		object := objects[g.id]
		for _, member := range g.members {
			object.isOverLo = object.isOverLo || objects[member].isOverLo
			object.encap = joinEncaps(object.encap, objects[member].encap)
		}
		objects[g.id] = object
	}
	return objects, err
}
