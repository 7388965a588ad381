package diff

import (
	"fmt"

	"github.com/sluice-mesh/sluice/rules"
)

// socketFound returns the packets for which the match finds a transparent socket: at output, where
// only nft has such a match, the socket of the sender (SocketMatchReadsSender), and otherwise the
// socket that receives the packet.
func (s *space) socketFound(m rules.MatchSocket, v *view) set {
	if m.Kind == rules.NFTSocket && s.hook == rules.Output && !v.loopbackArrival {
		return s.and(s.mayHaveSocket(), s.variable(variable{
			key: senderKey, text: "whether the socket that sends the packet is transparent",
		}))
	}
	text := "whether the host has a transparent socket for the packet"
	if m.Kind != "" {
		text += " (" + m.Kind + ")"
	}
	return s.lookedUp(variable{key: socketKey + m.Kind, text: text}, v)
}

// mayHaveSocket returns the packets that a socket may have sent, including a closed one.
func (s *space) mayHaveSocket() set {
	return s.or(s.or(s.hasUserSocket, s.hasKernelSocket), s.mayHaveClosedSocket())
}

// mayHaveClosedSocket returns the packets without an owner that a closed socket may have sent. Such
// a socket has no owner, but sends the rest of its data and retransmits packets.
func (s *space) mayHaveClosedSocket() set {
	return s.and(s.is(user, value{}), s.protocolIn(rules.TCP, rules.SCTP, rules.DCCP))
}

// lookedUp returns the packets for which a fact about the receiving socket is true. The kernel
// looks up this socket for a received packet (SocketMatchLooksUpReceiver). The variable is the fact
// for packets that were not translated.
func (s *space) lookedUp(fact variable, v *view) set {
	// forOther returns the fact for packets for which the kernel may find another socket.
	forOther := func(reason, text string) variable {
		other := fact
		other.key, other.text = reason+" "+fact.key, text
		if fact.kind == hostFact {
			other.kind = unknownBit
		}
		return other
	}
	if v.target != (target{}) || v.tproxy.assigned || v.snatAction != "" {
		fact = forOther(fmt.Sprint("socket after ", *v), fact.text)
	}
	// For replies to a translated source, the kernel looks up the socket by the address before the
	// translation. It knows this address from the connection (nf_sk_lookup_slow_v4 in
	// net/ipv4/netfilter/nf_socket_ipv4.c).
	translated := s.and(s.hasConnection(v), s.and(s.bit(reply, 0),
		s.maskedEquals(status, uint32(rules.StatusSNAT), uint32(rules.StatusSNAT))))
	packets := s.variable(fact)
	retranslated := none
	if s.seesRetranslated(v) {
		retranslated = s.retranslated()
	}
	if v.sourceTranslated {
		retranslated = s.or(retranslated, s.sourceRetranslated(v))
	}
	if retranslated = s.minus(retranslated, translated); retranslated != none {
		packets = s.ifElse(retranslated, s.variable(forOther("translated before",
			fact.text+", by the addresses to which earlier packets of the connection were "+
				"translated")), packets)
	}
	if translated == none {
		return packets
	}
	return s.ifElse(translated, s.variable(forOther("original",
		fact.text+", by the packet's address before translation")), packets)
}
