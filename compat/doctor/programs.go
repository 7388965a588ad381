package doctor

import (
	"fmt"
	"slices"
	"strings"

	"github.com/sluice-mesh/sluice/compat/bpf"
)

// programMeaning describes the effect of the programs of a hook on capture.
type programMeaning struct {
	severity Severity
	effect   string
}

const (
	rewrites = "it can rewrite the destination of a connection (socket load balancing) before Sluice's rules see it, so that " +
		"excluded and included addresses and ports are compared with the rewritten destination"
	canAlterPackets = "such a program can drop, change or redirect packets "
)

// meanings are the effects by hook.
func meanings() map[bpf.Hook]programMeaning {
	early := programMeaning{Warning, canAlterPackets + "before Sluice's rules see them"}
	late := programMeaning{Note, canAlterPackets + "after Sluice's rules have seen them"}
	rewriting := programMeaning{Warning, rewrites}
	return map[bpf.Hook]programMeaning{
		bpf.Connect4: rewriting, bpf.Connect6: rewriting,
		bpf.SendMsg4: rewriting, bpf.SendMsg6: rewriting,
		bpf.SockOps: {Note, "such a program can observe and tune connections"},
		bpf.Ingress: {Note, "such a program can drop packets after Sluice's rules have seen them"},
		bpf.Egress:  {Note, "such a program can drop packets after Sluice's rules have seen them"},
		bpf.SkLookup: {
			Warning, "it chooses the socket of an inbound connection: a captured connection can reach another socket than the proxy's",
		},
		bpf.XDP: early, bpf.TCIngress: early, bpf.TCXIngress: early, bpf.NetkitPeer: early,
		bpf.TCEgress: late, bpf.TCXEgress: late, bpf.NetkitPrimary: late,
	}
}

// checkPrograms reports the eBPF programs outside netfilter.
func (d *diagnosis) checkPrograms() {
	known := meanings()
	for i := range d.Programs.Programs {
		p := &d.Programs.Programs[i]
		m := known[p.Hook]
		if p.SocketMap != "" {
			m = programMeaning{
				Warning, "it uses the map " + p.SocketMap +
					" of sockets: data between sockets in the map bypasses the network stack and all rules",
			}
		}
		d.add("programs", m.severity, fmt.Sprintf("eBPF program %s runs at %s of %s: %s",
			describeProgram(p), p.Hook, p.At, m.effect),
			"bpftool prog show id "+fmt.Sprint(p.ID)+" on the node prints its details")
	}
	switch {
	case len(d.Programs.Unread) > 0:
		d.add("programs", Note, "not all eBPF programs are known: "+
			strings.Join(d.Programs.Unread, "; "), "")
	case len(d.Programs.Programs) == 0:
		d.add("programs", OK,
			"no eBPF program runs at the pod's cgroups, namespace and interfaces", "")
	}
}

// describeProgram returns the name and id of a program, and who loaded it as far as known.
func describeProgram(p *bpf.Program) string {
	text := fmt.Sprintf("%q (id %d", p.Name, p.ID)
	if p.Name == "" {
		text = fmt.Sprintf("without a readable name (id %d", p.ID)
	}
	if p.UID != nil {
		text += fmt.Sprintf(", loaded by uid %d", *p.UID)
	}
	if len(p.Processes) > 0 {
		const some = 3
		text += ", open in " + strings.Join(p.Processes[:min(some, len(p.Processes))], ", ")
	}
	return text + ")"
}

// checkRawSockets reports packet sockets and raw IP sockets, whose packets bypass the rules or are not
// captured.
func (d *diagnosis) checkRawSockets() {
	if d.SocketsErr != nil {
		d.add("sockets", Note, fmt.Sprintf("packet and raw sockets are not known: %v", d.SocketsErr),
			"")
		return
	}
	for _, kind := range []struct {
		packet bool
		effect string
	}{
		{true, "it receives copies of packets, as tcpdump does; packets that it sends bypass all rules"},
		{false, "packets that it sends pass Sluice's rules, but only TCP and DNS are captured"},
	} {
		for _, s := range d.Sockets {
			if s.Packet != kind.packet {
				continue
			}
			name := "a raw IP socket"
			if s.Packet {
				name = "a packet socket (AF_PACKET)"
			}
			owner := "of an unknown process"
			if len(s.Processes) > 0 {
				owner = "of " + strings.Join(slices.Sorted(slices.Values(s.Processes)), ", ")
			}
			d.add("sockets", Note, fmt.Sprintf("%s %s (uid %d) is open: %s", name, owner, s.UID,
				kind.effect), "")
		}
	}
}
