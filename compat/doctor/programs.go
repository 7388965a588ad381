package doctor

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/sluice-mesh/sluice/compat/bpf"
)

// A programEffect is the effect of the programs of a hook on capture.
type programEffect struct {
	severity Severity
	text     string
}

// programEffects returns the effects by hook.
func programEffects() map[bpf.Hook]programEffect {
	const canAlterPackets = "it can drop, change or redirect packets "
	early := programEffect{Warning, canAlterPackets + "before Sluice's rules see them"}
	late := programEffect{Note, canAlterPackets + "after Sluice's rules have seen them"}
	drop := programEffect{
		Note, "such a program can drop packets after Sluice's rules have seen them",
	}
	rewrite := programEffect{Warning, "it can rewrite the destination of a connection (socket load" +
		" balancing) before Sluice's rules see it, so that excluded and included addresses and ports" +
		" are compared with the rewritten destination"}
	mark := programEffect{Warning, "it can set the mark and the interface of sockets, which Sluice's" +
		" rules and the routes compare"}
	bind := programEffect{Warning, "it can change the address and port at which a program listens," +
		" so that captured connections do not reach the proxy"}
	return map[bpf.Hook]programEffect{
		bpf.Connect4: rewrite, bpf.Connect6: rewrite, bpf.SendMsg4: rewrite, bpf.SendMsg6: rewrite,
		bpf.SockOps: {Note, "such a program can observe and tune connections"},
		bpf.Ingress: drop, bpf.Egress: drop,
		bpf.SockCreate: mark, bpf.SetSockOpt: mark,
		bpf.Bind4: bind, bpf.Bind6: bind,
		bpf.GetSockOpt: {Warning, "it can change the original destination of a captured connection" +
			" that the proxy reads"},
		bpf.SkLookup: {Warning, "it chooses the socket of an inbound connection: a captured" +
			" connection can reach another socket than the proxy's"},
		bpf.XDP: early, bpf.TCIngress: early, bpf.TCXIngress: early, bpf.NetkitPeer: early,
		bpf.TCEgress: late, bpf.TCXEgress: late, bpf.NetkitPrimary: late,
	}
}

// effectAt returns the effect of the programs of a hook at an object, such as "interface eth0".
// Redirected packets reach the proxy over lo, after Sluice's rules have seen them.
func effectAt(hook bpf.Hook, object string) programEffect {
	switch hook {
	case bpf.TCEgress, bpf.TCXEgress:
		if object == "interface "+lo {
			return programEffect{Warning, "it can drop, change or redirect packets that the rules have" +
				" redirected to the proxy"}
		}
	}
	return programEffects()[hook]
}

// checkPrograms reports the eBPF programs outside netfilter.
func (d *diagnosis) checkPrograms() {
	for i := range d.Programs.Programs {
		p := &d.Programs.Programs[i]
		effect := effectAt(p.Hook, p.At)
		if p.SocketMap != "" {
			effect = programEffect{Warning, fmt.Sprintf("it uses the socket map %q: data between"+
				" sockets in the map bypasses the network stack and all rules", p.SocketMap)}
		}
		d.add("programs", effect.severity, fmt.Sprintf("eBPF program %s runs at %s of %s: %s",
			describeProgram(p), p.Hook, p.At, effect.text),
			fmt.Sprintf("bpftool prog show id %d on the node prints its details", p.ID))
	}
	for _, f := range d.Programs.Filters {
		effect := effectAt(f.Hook, "interface "+f.Interface)
		d.add("programs", effect.severity, fmt.Sprintf(
			"a filter of tc of kind %s runs at %s of interface %s: %s", f.Kind, f.Hook, f.Interface,
			effect.text),
			fmt.Sprintf("tc filter show dev %s parent %s in the namespace prints its details",
				f.Interface, f.Parent))
	}
	switch {
	case len(d.Programs.Unread) > 0:
		d.add("programs", Note, "not all eBPF programs are known: "+
			strings.Join(d.Programs.Unread, "; "), "")
	case len(d.Programs.Programs) == 0:
		d.add("programs", OK,
			"no eBPF program that can affect capture runs at the pod's cgroups, namespace and interfaces", "")
	}
}

// describeProgram returns the name and ID of a program and, if known, the user who loaded it and up
// to three processes that have it open.
func describeProgram(p *bpf.Program) string {
	text := fmt.Sprintf("%q (id %d", p.Name, p.ID)
	if p.Name == "" {
		text = fmt.Sprintf("without a readable name (id %d", p.ID)
	}
	if p.UID != nil {
		text += fmt.Sprintf(", loaded by uid %d", *p.UID)
	}
	if len(p.Processes) > 0 {
		text += ", open in " + strings.Join(p.Processes[:min(3, len(p.Processes))], ", ")
	}
	return text + ")"
}

// checkRawSockets reports packet sockets and raw IP sockets. Packets that a process sends through a
// packet socket bypass the rules. Packets from a raw IP socket are captured only if they are TCP or
// DNS.
func (d *diagnosis) checkRawSockets() {
	if d.SocketsErr != nil {
		unknown := "packet and raw sockets are not known"
		if len(d.Sockets) > 0 {
			unknown = "not all packet and raw sockets are known"
		}
		d.add("sockets", Note, fmt.Sprintf("%s: %v", unknown, d.SocketsErr), "")
	}
	for _, socketType := range []struct {
		packet       bool
		name, effect string
	}{
		{
			true, "a packet socket (AF_PACKET)",
			"it receives copies of packets, as tcpdump does; packets that it sends bypass all rules",
		},
		{
			false, "a raw IP socket",
			"packets that it sends traverse Sluice's rules, but only TCP and DNS are captured",
		},
	} {
		owners := map[string]int{} // number of sockets by owner
		for i := range d.Sockets {
			if s := &d.Sockets[i]; s.Packet == socketType.packet {
				owners[s.owner()]++
			}
		}
		for i, owner := range slices.Sorted(maps.Keys(owners)) {
			if i == maxSocketOwners {
				d.add("sockets", Note, fmt.Sprintf("%s of %d other groups of processes is open",
					socketType.name, len(owners)-maxSocketOwners), "")
				break
			}
			more := ""
			if n := owners[owner]; n > 1 {
				more = fmt.Sprintf(" (and %d more)", n-1)
			}
			d.add("sockets", Note, fmt.Sprintf("%s of %s is open%s: %s", socketType.name, owner, more,
				socketType.effect), "")
		}
	}
}

// maxSocketOwners is the maximum number of owners of sockets of one type that findings name: a pod
// can open any number of sockets.
const maxSocketOwners = 10

// owner describes the user of a socket and up to three processes that have it open.
func (s *RawSocket) owner() string {
	processes := "an unknown process"
	if len(s.Processes) > 0 {
		names := slices.Sorted(slices.Values(s.Processes))
		processes = strings.Join(names[:min(3, len(names))], ", ")
	}
	return fmt.Sprintf("%s (uid %d)", processes, s.UID)
}
