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
	// Entries contains the log entries of the packet, in order.
	Entries []LogEntry
	// Answer is the kernel's answer to the packet: "tcp reset", or the protocol, type and code of
	// an ICMP error. It is empty if the kernel did not answer.
	Answer string
	// Err is the reason why the packet could not be sent as described, or nil.
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

// Observe sends the packets one after the other and returns an observation of each packet. Before
// it sends a packet of an existing connection, or an ICMP error about a connection, it creates the
// connection.
func (n *Network) Observe(packets []rules.Packet) ([]Observation, error) {
	// The kernel does not reorder packets that are sent from one processor.
	unpin, err := pinToProcessor()
	if err != nil {
		return nil, err
	}
	defer unpin()

	observations := make([]Observation, len(packets))
	firstToken := n.token + 1 // each packet contains its own token
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
		i := int(e.token) - int(firstToken)
		if i >= 0 && i < len(packets) {
			observations[i].addEntry(&packets[i], e)
		}
	}
	for i := range packets {
		if observations[i].Err == nil {
			observations[i].Err = observations[i].compareFirst(&packets[i])
		}
	}
	return observations, nil
}

// addEntry adds a log entry to the observation of p.
func (o *Observation) addEntry(p *rules.Packet, e LogEntry) {
	if e.answer != "" {
		if e.Position == "output begin" { // the other positions log the same answer again
			o.Answer = e.answer
		}
		return
	}
	// Other packets contain the token too, such as an echo reply. Their source is not the source of
	// p. If SNAT has changed the source of p, use the new source at the end of postrouting only.
	isReply := e.To.Addr() == p.Source.Addr()
	hasSource := e.From == p.Source || e.Position == "postrouting end" && !isReply
	if e.Protocol == p.Protocol && hasSource {
		o.Entries = append(o.Entries, e)
	}
}

// pinToProcessor restricts the goroutine's thread to one of its processors, selected at random,
// until unpin is called.
func pinToProcessor() (unpin func(), err error) {
	runtime.LockOSThread()
	var all, one unix.CPUSet
	err = unix.SchedGetaffinity(0, &all)
	if err == nil {
		one.Set(randomProcessor(&all))
		err = unix.SchedSetaffinity(0, &one)
	}
	if err != nil {
		runtime.UnlockOSThread()
		return nil, err
	}
	return func() {
		_ = unix.SchedSetaffinity(0, &all)
		runtime.UnlockOSThread()
	}, nil
}

// randomProcessor returns a random processor of the set.
func randomProcessor(set *unix.CPUSet) int {
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

// compareFirst returns an error if the first log entry of the packet differs from its description
// p.
func (o *Observation) compareFirst(p *rules.Packet) error {
	if len(o.Entries) == 0 {
		return fmt.Errorf("%w: the packet did not enter a hook", errUnsendable)
	}
	e := o.Entries[0]
	want := LogEntry{
		Position: p.Hook.String() + " begin", In: p.InInterface, Out: p.OutInterface,
		Protocol: p.Protocol, From: p.Source, To: p.Destination, Mark: p.Mark,
	}
	if e.Position != want.Position || e.In != want.In || e.Out != want.Out ||
		e.Protocol != want.Protocol || e.From != want.From || e.To != want.To ||
		e.Mark != want.Mark {
		return fmt.Errorf("%w: the packet entered as %v", errUnsendable, e)
	}
	// The descriptions of arriving packets have no owner.
	if p.Hook == rules.Output && !equalOwners(e.Owner, p.Owner) {
		return fmt.Errorf("%w: the owner of the socket differs: %v", errUnsendable, e)
	}
	return nil
}

func equalOwners(a, b *rules.Owner) bool {
	if a == nil || b == nil {
		return a == b
	}
	return *a == *b
}

// logEntries returns the log entries of the packets that were sent. It sends a last packet, the
// sentinel, and reads the log up to the sentinel's entry. If the entry does not arrive within a
// second, it sends another sentinel, because a busy machine may lose or delay packets. It returns
// an error after a minute.
func (n *Network) logEntries() (entries []LogEntry, err error) {
	n.token++
	for begin := time.Now(); ; {
		if err := n.sendSentinel("eth0"); err != nil {
			return nil, err
		}
		more, err := n.readUntil(n.token, time.Second)
		entries = append(entries, more...)
		if !errors.Is(err, os.ErrDeadlineExceeded) || time.Since(begin) > time.Minute {
			return entries, err
		}
	}
}

// sendSentinel sends the sentinel with the current token. The sentinel arrives by the interface.
func (n *Network) sendSentinel(device string) error {
	p := rules.Packet{
		Protocol: rules.UDP, Source: netip.AddrPortFrom(sentinelSource, 1),
		Destination: netip.AddrPortFrom(netip.MustParseAddr("10.244.1.5"), sentinelPort),
	}
	return n.devices[device].writeFrame(encode(&p, n.token, nil), 0, ordinaryFrame)
}
