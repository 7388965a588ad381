package kerneltest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/rules"
)

// An Observation describes what the kernel did with a packet.
type Observation struct {
	// Entries contains the logged positions of the packet, in order.
	Entries []LogEntry
	// Answer is the kernel's answer to the packet: "tcp reset", or the protocol, type and code of
	// an ICMP error. It is empty if the kernel did not answer.
	Answer string
	// Err is the reason why the packet could not be sent as described.
	Err error
}

// lastEntry returns the last entry at a position, or nil.
func (o *Observation) lastEntry(position string) *LogEntry {
	for i := range slices.Backward(o.Entries) {
		if o.Entries[i].Position == position {
			return &o.Entries[i]
		}
	}
	return nil
}

// Observe sends the packets one after the other and returns an observation of each packet. Before a
// packet in a state other than new, it creates the connection.
func (n *Network) Observe(packets []rules.Packet) ([]Observation, error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var all unix.CPUSet
	if err := unix.SchedGetaffinity(0, &all); err != nil {
		return nil, err
	}
	// The kernel does not reorder packets that are sent from one processor.
	var cpus unix.CPUSet
	cpus.Set(someCPU(&all))
	if err := unix.SchedSetaffinity(0, &cpus); err != nil {
		return nil, err
	}
	defer func() { _ = unix.SchedSetaffinity(0, &all) }()

	observations := make([]Observation, len(packets))
	first := n.token + 1
	for i := range packets {
		n.token++
		err := n.send(&packets[i], n.token)
		if errors.Is(err, unix.EAGAIN) {
			return nil, fmt.Errorf("the send buffer is full: the kernel has not freed earlier"+
				" packets: %s: %w", packets[i], err)
		}
		observations[i].Err = err
	}
	entries, err := n.logEntries()
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		if e.answer == "tcp reset" {
			e.token = first + uint32(slices.IndexFunc(packets, func(p rules.Packet) bool {
				return p.Protocol == rules.TCP && p.Source == e.To
			}))
		}
		i := int(e.token - first)
		if i < 0 || i >= len(packets) {
			continue
		}
		if e.answer != "" {
			if e.Position == "output begin" {
				observations[i].Answer = e.answer
			}
			continue
		}
		// Ignore packets that only return the token, such as an echo reply. The source of the
		// packet may be translated at the end of postrouting.
		isTranslated := e.Position == "postrouting end" && e.To.Addr() != packets[i].Source.Addr()
		if p := &packets[i]; e.Protocol == p.Protocol && (e.From == p.Source || isTranslated) {
			observations[i].Entries = append(observations[i].Entries, e)
		}
	}
	for i := range packets {
		if observations[i].Err == nil {
			observations[i].Err = observations[i].check(&packets[i])
		}
	}
	return observations, nil
}

// someCPU returns a random processor of the set.
func someCPU(set *unix.CPUSet) int {
	skip := rand.IntN(set.Count())
	for i := 0; ; i++ {
		if !set.IsSet(i) {
			continue
		}
		if skip == 0 {
			return i
		}
		skip--
	}
}

// check returns an error if the packet differed from its description.
func (o *Observation) check(p *rules.Packet) error {
	if len(o.Entries) == 0 {
		return fmt.Errorf("%w: it did not enter a hook", errUnsendable)
	}
	s := o.Entries[0]
	want := LogEntry{
		Position: p.Hook.String() + " begin", In: p.InInterface, Out: p.OutInterface,
		Protocol: p.Protocol,
		From:     p.Source, To: p.Destination, Mark: p.Mark,
	}
	if s.Position != want.Position || s.In != want.In || s.Out != want.Out ||
		s.Protocol != want.Protocol ||
		s.From != want.From || s.To != want.To || s.Mark != want.Mark {
		return fmt.Errorf("%w: it entered as %v", errUnsendable, s)
	}
	if p.Hook == rules.Output && ((s.Owner == nil) != (p.Owner == nil) || s.Owner != nil &&
		*s.Owner != *p.Owner) {
		return fmt.Errorf("%w: it has another socket: %v", errUnsendable, s)
	}
	return nil
}

// logEntries returns the log entries of the packets that were sent. It repeats the sentinel,
// because a busy machine may lose or delay it.
func (n *Network) logEntries() (entries []LogEntry, err error) {
	n.token++
	for begin := time.Now(); ; {
		if err := n.sentinel("eth0"); err != nil {
			return nil, err
		}
		more, err := n.readUntil(n.token, time.Second)
		entries = append(entries, more...)
		if !errors.Is(err, os.ErrDeadlineExceeded) || time.Since(begin) > time.Minute {
			return entries, err
		}
	}
}

// sentinel sends the packet that ends an observation. It contains the current token.
func (n *Network) sentinel(device string) error {
	p := rules.Packet{
		Protocol: rules.UDP, Source: netip.AddrPortFrom(peerAddr, 1),
		Destination: netip.AddrPortFrom(netip.MustParseAddr("10.244.1.5"), sentinelPort),
	}
	return n.devices[device].writeFrame(encode(&p, n.token, nil), 0, ordinaryFrame)
}
