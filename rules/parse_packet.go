package rules

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// PacketSyntax is what [ParsePacket] reads, for help texts.
const PacketSyntax = `{in|out} PROTOCOL SOURCE[:PORT] > DESTINATION[:PORT] [dev NAME] [uid N] [gid N] [no-socket]` +
	` [mark N] [ctmark N] [state new|established|related|invalid|untracked] [flags LIST|none] [no-listener]`

// ParsePacket reads a packet from text such as
//
//	out tcp 10.244.1.5:40000 > 10.96.0.1:443 uid 1000
//	in tcp [fd00::9]:51000 > [fd00::5]:8080 dev eth0 state established
//
// Left out, the device is lo for an outgoing packet to a loopback address or to its own source and eth0 otherwise, the user
// is 0 and the group equal to the user, the state new, and the flags of TCP syn for a new connection and ack otherwise.
// The error names every word that is wrong.
func ParsePacket(text string) (Packet, error) {
	words := strings.Fields(text)
	if len(words) < 5 || words[3] != ">" {
		return Packet{}, fmt.Errorf("packet %q: want %s", text, PacketSyntax)
	}
	p := Packet{}
	var faults []error
	fault := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }

	switch words[0] {
	case "in":
		p.Hook = Prerouting
	case "out":
		p.Hook = Output
	default:
		fault("direction %q is not in or out", words[0])
	}
	var err error
	if p.Protocol, err = ParseProtocol(words[1]); err != nil {
		faults = append(faults, err)
		if _, err := netip.ParseAddrPort(words[2]); err == nil {
			p.Protocol = TCP // so that its ports are no faults too
		}
	}
	if p.Source, err = parseEnd(words[2], p.Protocol); err != nil {
		fault("source %w", err)
	}
	if p.Destination, err = parseEnd(words[4], p.Protocol); err != nil {
		fault("destination %w", err)
	}
	if p.Source.IsValid() && p.Destination.IsValid() && FamilyOf(p.Source.Addr()) != p.Family() {
		fault("source %s and destination %s are of different families", p.Source.Addr(), p.Destination.Addr())
	}
	if err := p.parseOptions(words[5:]); err != nil {
		faults = append(faults, err)
	}
	if len(faults) > 0 {
		return Packet{}, fmt.Errorf("packet %q: %w", text, errors.Join(faults...))
	}
	return p, nil
}

// parseOptions reads the words after the addresses and fills in what they leave out.
func (p *Packet) parseOptions(words []string) error {
	var (
		faults         []error
		device         string
		uid, gid       *uint32
		flags          *TCPFlags
		socketless     bool
		optionsOfValue = []string{"dev", "uid", "gid", "mark", "ctmark", "state", "flags"}
	)
	number := func(name, text string) *uint32 {
		n, err := ParseMark(text)
		if err != nil {
			faults = append(faults, fmt.Errorf("%s %w", name, err))
		}
		return &n
	}
	for i := 0; i < len(words); i++ {
		name := words[i]
		value := ""
		if slices.Contains(optionsOfValue, name) {
			if i++; i == len(words) {
				faults = append(faults, fmt.Errorf("%s has no value", name))
				break
			}
			value = words[i]
		}
		var err error
		switch name {
		case "dev":
			device = value
			if !validInterface(value) {
				err = fmt.Errorf("dev %q is not the name of an interface", value)
			}
		case "uid":
			uid = number(name, value)
		case "gid":
			gid = number(name, value)
		case "mark":
			p.Mark = *number(name, value)
		case "ctmark":
			p.ConntrackMark = *number(name, value)
		case "state":
			i := slices.Index(stateNames[:], value)
			if i < 0 {
				err = fmt.Errorf("state %q is not one of %s", value, strings.Join(stateNames[:], ", "))
			}
			p.State = State(max(i, 0))
		case "flags":
			if flags, err = parseFlags(value); p.Protocol != TCP {
				err = errors.New("flags are of tcp only")
			}
		case "no-socket":
			socketless = true
		case "no-listener":
			p.NoListener = true
		default:
			err = fmt.Errorf("%q is not an option; want %s", name, PacketSyntax)
		}
		if err != nil {
			faults = append(faults, err)
		}
	}
	if p.Hook == Prerouting && (uid != nil || gid != nil || socketless) {
		faults = append(faults, errors.New("uid, gid and no-socket are of outgoing packets: no socket has sent one that comes in"))
	}
	if p.Hook == Output && !socketless {
		p.Owner = &Owner{}
		if uid != nil {
			*p.Owner = Owner{UID: *uid, GID: *uid}
		}
		if gid != nil {
			p.Owner.GID = *gid
		}
	}
	p.setDevice(device)
	if p.Protocol == TCP {
		p.Flags = defaultFlags(p.State)
		if flags != nil {
			p.Flags = *flags
		}
	}
	return errors.Join(faults...)
}

// setDevice sets the interface at the packet's hook; the empty name stands for the one that routing would likely choose.
func (p *Packet) setDevice(device string) {
	local := p.Destination.Addr().IsLoopback() || p.Destination.Addr() == p.Source.Addr()
	switch {
	case device == "" && p.Hook == Output && local:
		device = loopback
	case device == "":
		device = "eth0"
	}
	if p.Hook == Output {
		p.OutInterface = device
	} else {
		p.InInterface = device
	}
}

// ParseProtocol reads a protocol's name or number.
func ParseProtocol(text string) (Protocol, error) {
	if p := slices.Index(protocolNames[:], text); p >= 0 && text != "" {
		return Protocol(p), nil
	}
	n, err := strconv.ParseUint(text, 10, 8)
	if err != nil {
		return 0, fmt.Errorf("protocol %q is not tcp, udp, icmp, ipv6-icmp, sctp or a number from 0 to 255", text)
	}
	return Protocol(n), nil
}

func parseEnd(text string, protocol Protocol) (netip.AddrPort, error) {
	if protocol == TCP || protocol == UDP {
		end, err := netip.ParseAddrPort(text)
		if err != nil || end.Addr().Zone() != "" {
			return netip.AddrPort{}, fmt.Errorf("%q is not an address and port, such as 10.1.2.3:80 or [fd00::1]:80", text)
		}
		return end, nil
	}
	addr, err := netip.ParseAddr(text)
	if err != nil || addr.Zone() != "" {
		return netip.AddrPort{}, fmt.Errorf("%q is not an address", text)
	}
	return netip.AddrPortFrom(addr, 0), nil
}

func parseFlags(text string) (*TCPFlags, error) {
	var flags TCPFlags
	if text == "none" || text == "0x0" {
		return &flags, nil
	}
	for name := range strings.SplitSeq(text, ",") {
		i := slices.Index(flagNames[:], name)
		if i < 0 {
			return nil, fmt.Errorf("flag %q is not one of %s", name, strings.Join(flagNames[:], ", "))
		}
		flags |= 1 << i
	}
	return &flags, nil
}
