package kerneltest

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/rules"
)

// observerTable is the name of the tables that observe packets: one table in each of the families
// ip, ip6, inet and netdev.
const observerTable = "observer"

// sentinelPort is the port of the sentinel, a packet that is sent after all other packets.
const sentinelPort = 65534

// observerTables contains the tables of the families ip, ip6 and inet. The chains of the table of
// the family inet run before and after all chains of a ruleset. They log each packet, and drop it
// at its last position.
//
// The tables of the families ip and ip6 send a copy of each packet that arrives in a frame of the
// kind socketlessFrame. A copy traverses output without a socket, and conntrack does not track it
// (nf_dup_ipv4 in net/ipv4/netfilter/nf_dup_ipv4.c).
const observerTables = `
table ip observer {
	chain copy {
		type filter hook prerouting priority -1000001;
		@ll,48,16 0x0201 dup to ip daddr
		@ll,48,16 0x0201 drop
	}
}
table ip6 observer {
	chain copy {
		type filter hook prerouting priority -1000001;
		@ll,48,16 0x0201 dup to ip6 daddr
		@ll,48,16 0x0201 drop
	}
}
table inet observer {
	chain note {
	}
	chain prerouting_begin {
		type filter hook prerouting priority -1000000;
		ip saddr 198.18.0.1 udp dport 65534 log prefix "sentinel" group 1 drop
		log prefix "prerouting begin" group 1
	}
	chain prerouting_end {
		type filter hook prerouting priority 1000000;
		jump note
		log prefix "prerouting end" group 1 drop
	}
	chain output_begin {
		type filter hook output priority -1000000;
		log prefix "output begin" group 1
	}
	chain output_end {
		type filter hook output priority 1000000;
		jump note
		log prefix "output end" group 1
	}
	chain postrouting {
		type filter hook postrouting priority -1000000;
		log prefix "postrouting" group 1
	}
	chain postrouting_end {
		type filter hook postrouting priority 1000000;
		oifname "lo" return
		jump note
		log prefix "postrouting end" group 1 drop
	}
	chain nat_prerouting {
		type nat hook prerouting priority 1000000;
	}
	chain nat_output {
		type nat hook output priority 1000000;
	}
}
`

func (n *Network) loadObserver() error {
	text := observerTables + "table netdev observer {\n"
	for _, name := range interfaces {
		// Bytes 2 to 5 of the frame's source address are the mark.
		text += fmt.Sprintf(`chain %s {
			type filter hook ingress device %[1]s priority 0;
			meta mark set @ll,64,32
		}
		`, name)
	}
	if err := run(n.Pod, text+"}\n", "nft", "-f", "-"); err != nil {
		return err
	}
	return n.addNotes()
}

// addNotes adds the rules that write [notes] to packets. nft's language cannot express these rules.
func (n *Network) addNotes() error {
	c, err := nftables.New(nftables.WithNetNSFd(n.Pod.FD()))
	if err != nil {
		return err
	}
	chain := &nftables.Chain{
		Name: "note", Table: &nftables.Table{Name: observerTable, Family: nftables.TableFamilyINet},
	}
	// NAT drops an ICMPv6 error with a wrong checksum (nf_nat_icmpv6_reply_translation in
	// net/netfilter/nf_nat_proto.c), and computes the checksum again if a rule has changed the IPv6
	// header. Therefore the rules for ICMPv6 update the checksum.
	const icmpChecksumOffset = 2
	for _, op := range []expr.CmpOp{expr.CmpOpEq, expr.CmpOpNeq} {
		for _, note := range notes {
			write := &expr.Payload{
				OperationType: expr.PayloadWrite, SourceRegister: 1,
				Base: expr.PayloadBaseTransportHeader, Offset: notesAt + note.at, Len: note.size,
			}
			if op == expr.CmpOpEq {
				write.CsumType, write.CsumOffset = expr.CsumTypeInet, icmpChecksumOffset
			}
			c.AddRule(&nftables.Rule{Table: chain.Table, Chain: chain, Exprs: []expr.Any{
				&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: 1},
				&expr.Cmp{Op: op, Register: 1, Data: []byte{unix.IPPROTO_ICMPV6}},
				&expr.Ct{Key: note.key, Register: 1},
				write,
			}})
		}
	}
	return c.Flush()
}

// IsRefused reports whether the error means that a program rejected its input.
func IsRefused(err error) bool { return errors.Is(err, errRefused) }

// errRefused is wrapped by the error of a program that exited with a status other than 0.
var errRefused = errors.New("refused")

// run runs a program in the namespace.
func run(ns *netns.NS, input, name string, args ...string) error {
	cmd := exec.Command(name, args...)
	cmd.Env = append(os.Environ(), "XTABLES_LOCKFILE=/dev/null",
		"PATH="+os.Getenv("PATH")+":/usr/sbin:/sbin")
	cmd.Stdin = strings.NewReader(input)
	output := new(strings.Builder)
	cmd.Stdout, cmd.Stderr = output, output
	err := ns.Do(cmd.Run)
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		return fmt.Errorf("%s: %w: %s", name, errRefused, strings.TrimSpace(output.String()))
	}
	return err
}

// logGroup is the group to which the rules of observerTables log.
const logGroup = 1

// Numbers from linux/netfilter/nfnetlink.h and linux/netfilter/nfnetlink_log.h.
const (
	subsysLog  = 4
	logConfig  = 1
	cfgCommand = 1
	cfgMode    = 2
	cfgCount   = 5

	logMark     = 2
	logIndev    = 4
	logOutdev   = 5
	logPayload  = 9
	logPrefix   = 10
	logUID      = 11
	logGID      = 14
	commandBind = 1
	copyPacket  = 2
)

// configureLog requests complete packets from the log, each in its own message.
func (n *Network) configureLog() error {
	if err := n.log.SetReadBuffer(16 << 20); err != nil {
		return err
	}
	configure := func(set func(a *netlink.AttributeEncoder)) error {
		encoder := netlink.NewAttributeEncoder()
		encoder.ByteOrder = binary.BigEndian
		set(encoder)
		attributes, err := encoder.Encode()
		if err != nil {
			return err
		}
		return execute(n.log, subsysLog<<8|logConfig, 0, unix.AF_UNSPEC, logGroup, attributes)
	}
	err := configure(func(a *netlink.AttributeEncoder) { a.Uint8(cfgCommand, commandBind) })
	if err != nil {
		return fmt.Errorf("bind: %w", err)
	}
	err = configure(func(a *netlink.AttributeEncoder) {
		const maxSize, padding = 0xffff, 0
		a.Bytes(cfgMode, append(binary.BigEndian.AppendUint32(nil, maxSize), copyPacket, padding))
		a.Uint32(cfgCount, 1) // packets in a message
	})
	if err != nil {
		return fmt.Errorf("set the mode: %w", err)
	}
	return nil
}

// A LogEntry is a logged packet at one position.
type LogEntry struct {
	Position string // "prerouting begin", "output end" and so on
	In, Out  string // interfaces
	Protocol rules.Protocol
	From, To netip.AddrPort
	Mark     uint32
	Owner    *rules.Owner // of the packet's socket, or nil
	// State and Connection, the packet's conntrack entry or nil, are set only at the end of a hook.
	State      rules.State
	Connection *Connection

	token    uint32
	hasToken bool
	answer   string // see [decodedPacket]
}

// String returns the entry in one line.
func (e LogEntry) String() string {
	text := fmt.Sprintf("%s: in %q out %q %s %s > %s mark 0x%x", e.Position, e.In, e.Out,
		e.Protocol, e.From, e.To, e.Mark)
	if e.Owner != nil {
		text += fmt.Sprintf(" socket of %d:%d", e.Owner.UID, e.Owner.GID)
	}
	c := e.Connection
	if c == nil {
		return text + " " + e.State.String()
	}
	return text + fmt.Sprintf(" connection mark 0x%x zone %d status %s state %s reply %t",
		c.Mark, c.Zone, c.Status, c.State, c.Reply)
}

// errIncomplete is wrapped by the error for a log that ended before the sentinel.
var errIncomplete = errors.New("the log is incomplete")

// readUntil reads the log up to the sentinel with the token, and returns the entries of the other
// packets. If the sentinel does not arrive in time, it returns an error and the entries so far.
func (n *Network) readUntil(sentinelToken uint32, wait time.Duration) ([]LogEntry, error) {
	var entries []LogEntry
	if err := n.log.SetReadDeadline(time.Now().Add(wait)); err != nil {
		return nil, err
	}
	for {
		messages, err := n.log.Receive()
		if err != nil {
			return entries, fmt.Errorf("%w: %w", errIncomplete, err)
		}
		for _, m := range messages {
			const packetMessage, headerSize = subsysLog << 8, 4 // NFULNL_MSG_PACKET, nfgenmsg
			if m.Header.Type != packetMessage || len(m.Data) < headerSize {
				continue
			}
			e, err := n.decodeEntry(m.Data[headerSize:])
			if err != nil {
				return nil, err
			}
			switch {
			case e.Position == "sentinel" && e.token == sentinelToken:
				return entries, nil
			case e.Position != "sentinel" && (e.hasToken || e.answer != ""):
				entries = append(entries, e)
			}
		}
	}
}

func (n *Network) decodeEntry(attributes []byte) (LogEntry, error) {
	var e LogEntry
	var owner rules.Owner
	hasOwner := false
	a, err := netlink.NewAttributeDecoder(attributes)
	if err != nil {
		return e, err
	}
	a.ByteOrder = binary.BigEndian
	for a.Next() {
		switch a.Type() {
		case logMark:
			e.Mark = a.Uint32()
		case logIndev:
			e.In = n.nameOfIndex[a.Uint32()]
		case logOutdev:
			e.Out = n.nameOfIndex[a.Uint32()]
		case logPayload:
			d := decode(a.Bytes())
			e.Protocol, e.From, e.To, e.token, e.hasToken = d.protocol, d.from, d.to, d.token,
				d.hasToken
			e.State, e.Connection, e.answer = d.state, d.conn, d.answer
		case logPrefix:
			e.Position = a.String()
		case logUID:
			owner.UID, hasOwner = a.Uint32(), true
		case logGID:
			owner.GID, hasOwner = a.Uint32(), true
		}
	}
	if hasOwner {
		e.Owner = &owner
	}
	return e, a.Err()
}

// waitForLinks waits until a packet has arrived by each interface. A new link drops the packets
// that it should send until the kernel has activated it (linkwatch_do_dev in
// net/core/link_watch.c).
func (n *Network) waitForLinks() error {
	begin := time.Now()
	for _, name := range interfaces {
		for {
			n.token++
			err := n.sendSentinel(name)
			if err == nil {
				_, err = n.readUntil(n.token, 20*time.Millisecond)
			}
			if err == nil {
				break
			}
			if time.Since(begin) > time.Minute {
				return fmt.Errorf("%s: %w", name, err)
			}
		}
	}
	return nil
}
