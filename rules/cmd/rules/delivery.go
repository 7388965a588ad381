package main

import (
	"slices"

	"github.com/sluice-mesh/sluice/nft/bridge"
	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/nft/route"
	"github.com/sluice-mesh/sluice/rules"
)

// setDelivery sets the delivery of a packet that is assigned to a transparent listener. It looks up
// the route of the packet in the namespace from which the rules were read.
func (s *system) setDelivery(p *parameters, trace *rules.Trace) {
	o := trace.Outcome
	isRedirected := o.Redirect != 0 || o.ToHost // then the destination is an address of this host
	if !o.HasListener() || o.UnknownMarks != "" || o.DNATAddrLast.IsValid() || isRedirected {
		return
	}
	arriving := trace.Passes[len(trace.Passes)-1].Packet
	packet := route.ReceivedPacket{
		Interface: arriving.InInterface, Source: arriving.Source.Addr(),
		Destination: arriving.Destination.Addr(), Mark: o.Mark,
	}
	if o.DNATAddr.IsValid() {
		packet.Destination = o.DNATAddr
	}
	err := p.inNamespace(func(ns *netns.NS) error {
		overBridge, err := isOverBridge(ns, arriving)
		if err != nil {
			return err
		}
		delivers, err := route.Delivers(ns, packet)
		switch {
		case err != nil:
			return err
		case delivers && overBridge:
			trace.Delivery = rules.RemovedByBridge
		case delivers:
			trace.Delivery = rules.Delivered
		default:
			trace.Delivery = rules.NotDelivered
		}
		return nil
	})
	// Only warn: the namespace may have no interface with the name that the packet states.
	if err != nil && trace.Delivery == rules.DeliveryUnknown {
		s.warn("%s: %v", arriving, err)
	}
}

// isOverBridge reports whether the packet traverses the hooks of IP inside a bridge: rules see the
// bridge as its interface, but the packet may state the port of the bridge.
func isOverBridge(ns *netns.NS, p rules.Packet) (bool, error) {
	ports, err := bridge.FilteredPorts(ns)
	return slices.ContainsFunc(ports, func(port bridge.Port) bool {
		return port.Filters(p.Family()) &&
			(port.Name == p.InInterface || port.Bridge == p.InInterface)
	}), err
}

// warnOfRoute warns if the namespace routes the packet through an interface other than
// packet.OutInterface. Rules may depend on the interface.
func (s *system) warnOfRoute(p *parameters, packet *rules.Packet) {
	if packet.Hook != rules.Output || packet.Bound || packet.SelectsInterface {
		return
	}
	sent := route.SentPacket{
		Source: packet.Source.Addr(), Destination: packet.Destination.Addr(), Mark: packet.Mark,
	}
	if packet.Owner != nil {
		sent.UID = &packet.Owner.UID
	}
	err := p.inNamespace(func(ns *netns.NS) error {
		name, err := route.OutInterface(ns, sent)
		if err == nil && name != "" && name != packet.OutInterface {
			s.warn("%s: the namespace routes this packet through interface %s; to explain it for "+
				"%s, add dev %s", packet, name, name, name)
		}
		return err
	})
	if err != nil {
		s.warn("%s: %v", packet, err)
	}
}

// deliveryText returns a sentence about the delivery of the packet to the transparent listener. It
// is empty if the packet is not assigned to a listener.
func deliveryText(trace rules.Trace) string {
	switch {
	case !trace.Outcome.HasListener():
		return ""
	case trace.Delivery == rules.Delivered:
		return "Routing delivers it to this host, so the listener receives it."
	case trace.Delivery == rules.NotDelivered:
		return "Routing does not deliver it to this host, so the kernel drops it."
	case trace.Delivery == rules.RemovedByBridge:
		return "The listener does not receive it, because it arrives at a port of a bridge: the kernel " +
			"removes the assignment, so an application on its port receives it."
	}
	return "The listener receives it only if routing delivers it to this host: no policy route " +
		"is known to select its mark, and its destination is not known to be a local address."
}

// deliveryName returns the delivery for the JSON form.
func deliveryName(trace rules.Trace) string {
	if !trace.Outcome.HasListener() {
		return ""
	}
	return [...]string{
		rules.DeliveryUnknown: "unknown", rules.Delivered: "delivered",
		rules.NotDelivered: "dropped", rules.RemovedByBridge: "removed",
	}[trace.Delivery]
}
