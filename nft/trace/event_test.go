package trace_test

import (
	"encoding/binary"
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/nft/trace"
	"github.com/sluice-mesh/sluice/rules"
)

// attribute encodes a netlink attribute.
func attribute(kind uint16, value ...byte) []byte {
	b := binary.NativeEndian.AppendUint16(nil, uint16(4+len(value)))
	b = append(binary.NativeEndian.AppendUint16(b, kind), value...)
	return append(b, make([]byte, -len(b)&3)...)
}

func number(n uint32) []byte { return binary.BigEndian.AppendUint32(nil, n) }

func join(parts ...[]byte) (b []byte) {
	for _, p := range parts {
		b = append(b, p...)
	}
	return b
}

// Attributes of trace messages (enum nft_trace_attributes), and a conntrack state of nftables.
const (
	attrDirection = 19
	attrStatus    = 20
	attrState     = 21
	stateNew      = 8
)

// jumpMessage encodes the message of a rule that jumps, with the headers of a TCP segment.
func jumpMessage() []byte {
	network := make([]byte, 20)
	network[9] = 6
	copy(network[12:], []byte{10, 0, 0, 1, 10, 0, 0, 2})
	transport := make([]byte, 20)
	copy(transport, []byte{0x9c, 0x40, 0, 80})
	transport[13] = byte(rules.SYN)
	return join(
		[]byte{unix.NFPROTO_INET, 0, 0, 0},
		attribute(unix.NFTA_TRACE_ID, number(7)...),
		attribute(unix.NFTA_TRACE_TYPE, number(uint32(trace.Rule))...),
		attribute(unix.NFTA_TRACE_TABLE, []byte("sluice\x00")...),
		attribute(unix.NFTA_TRACE_CHAIN, []byte("output\x00")...),
		attribute(unix.NFTA_TRACE_RULE_HANDLE, 0, 0, 0, 0, 0, 0, 0, 9),
		attribute(unix.NFTA_TRACE_VERDICT|unix.NLA_F_NESTED, join(
			attribute(unix.NFTA_VERDICT_CODE, 0xff, 0xff, 0xff, 0xfd), // NFT_JUMP, which is -3
			attribute(unix.NFTA_VERDICT_CHAIN, []byte("other\x00")...))...),
		attribute(unix.NFTA_TRACE_MARK, number(0x539)...),
		attribute(unix.NFTA_TRACE_NFPROTO, number(unix.NFPROTO_IPV4)...),
		attribute(unix.NFTA_TRACE_OIF, number(2)...),
		attribute(unix.NFTA_TRACE_NETWORK_HEADER, network...),
		attribute(unix.NFTA_TRACE_TRANSPORT_HEADER, transport...),
		attribute(attrDirection, 1), attribute(attrState, number(stateNew)...),
	)
}

func TestDecodeOfARuleThatJumps(t *testing.T) {
	got, err := trace.Decode(jumpMessage())
	if err != nil {
		t.Fatal(err)
	}
	want := trace.Event{
		Kind: trace.Rule, ID: 7, Table: "sluice", Chain: "output", Handle: 9, Verdict: trace.Jump,
		Target: "other", Mark: 0x539, Out: 2,
		Header: &trace.Header{
			Protocol: rules.TCP, Source: netip.MustParseAddrPort("10.0.0.1:40000"),
			Destination: netip.MustParseAddrPort("10.0.0.2:80"),
			Flags:       rules.SYN,
		},
		State: rules.New, HasState: true, Reply: true,
	}
	if d := cmp.Diff(want, got, cmp.Comparer(func(a, b netip.AddrPort) bool {
		return a == b
	})); d != "" {
		t.Errorf("event (-want +got):\n%s", d)
	}
}

// TestATemplateIsNotAConfirmedConnection uses the status of the template that "-j CT" attaches.
func TestATemplateIsNotAConfirmedConnection(t *testing.T) {
	const confirmed, template = 1 << 3, 1 << 11
	for status, want := range map[uint32]bool{
		0: false, confirmed: true, confirmed | template: false,
	} {
		e, err := trace.Decode(join([]byte{2, 0, 0, 0},
			attribute(attrStatus, number(status)...)))
		if err != nil || e.Confirmed != want {
			t.Errorf("status 0x%x: confirmed %t, error %v, want %t", status, e.Confirmed, err, want)
		}
	}
}

func TestDecodeRejectsMalformedInput(t *testing.T) {
	for name, message := range map[string][]byte{
		"no header":                  {2, 0},
		"a number that is too short": join([]byte{2, 0, 0, 0}, attribute(unix.NFTA_TRACE_ID, 1)),
		"an attribute that is longer than the message": {2, 0, 0, 0, 200, 0, 1, 0},
	} {
		if e, err := trace.Decode(message); err == nil {
			t.Errorf("%s: decoded as %+v, want an error", name, e)
		}
	}
}

func FuzzDecode(f *testing.F) {
	f.Add(jumpMessage())
	f.Fuzz(func(_ *testing.T, message []byte) { _, _ = trace.Decode(message) })
}

func TestCollectorJoinsTheEventsBeforeAndAfterLo(t *testing.T) {
	out := &trace.Header{
		Protocol: rules.TCP, Source: netip.MustParseAddrPort("10.0.0.1:40000"),
		Destination: netip.MustParseAddrPort("10.0.0.2:80"),
	}
	in := &trace.Header{
		Protocol: rules.TCP, Source: out.Source,
		Destination: netip.MustParseAddrPort("127.0.0.1:15001"),
	}
	other := &trace.Header{
		Protocol: rules.TCP, Source: netip.MustParseAddrPort("10.0.0.1:40001"),
		Destination: out.Destination,
	}
	var c trace.Collector
	start := time.Unix(1, 0)
	c.Add(start,
		trace.Event{ID: 1, Out: 2, Header: out},
		trace.Event{ID: 2, Out: 2, Header: other},
		trace.Event{ID: 1},
		trace.Event{ID: 3, In: 1, Header: in})
	c.Add(start.Add(time.Second), trace.Event{ID: 2})
	got := c.Take(start.Add(time.Millisecond))
	if len(got) != 1 || len(got[0].Events) != 3 || got[0].Header() != out {
		t.Errorf("got %+v, want the three events of the first packet", got)
	}
	if !c.HasPackets() {
		t.Error("the collector is empty, want the second packet")
	}
	if got := c.Take(start.Add(time.Hour)); len(got) != 1 || len(got[0].Events) != 2 {
		t.Errorf("got %+v, want the two events of the second packet", got)
	}
	if c.HasPackets() {
		t.Error("the collector contains packets after the last Take, want none")
	}
}
