package rules

// Unknown is a condition or an action that the model does not support. It implements both [Match]
// and [Action].
//
// As a Match, its result is unknown. An Unknown with a side effect (see [Effect.IsCondition]) must
// be an Action; matches after it are [Require] actions. The outcome of a packet that reaches an
// Unknown is undecided, unless all possible results of the Unknown lead to the same outcome or, for
// some effects, the possible outcomes are known (see [Trace.Alternatives]).
type Unknown struct {
	// Text is the text of the expression that users see.
	Text string
	// Effect is what the expression may read or change.
	Effect Effect
	// Data is the part of the expression that Text omits, and is used only for comparison. Package
	// rules/diff treats two Unknowns in corresponding rules of two rulesets as equal if their Text
	// and Data are equal. It treats NoData as equal to nothing, not even to itself.
	Data string
	// State names the state that the expression reads, or that it changes if Effect is
	// ReadsAndWrites or Writes, for example an address list or labels. A condition on a state
	// depends on all earlier writes to it. If State is empty, an expression with the effect
	// ReadsVarying or ReadsHistory has a state of its own (for example a limit). An expression with
	// the effect Reads may then depend on any state, unless Ignores contains StateInput.
	State string
	// Ignores contains the inputs on which the condition, or the value that is written, does not
	// depend. If any other input differs, two evaluations may have different results.
	Ignores Inputs
}

// Inputs is a set of inputs of an [Unknown] that earlier rules, and the kernel between two chains,
// can change.
type Inputs uint8

// The inputs.
const (
	// ConnectionInput is the conntrack entry of the packet: its existence, addresses, state, zone
	// and helper.
	ConnectionInput Inputs = 1 << iota
	// MarkInput and ConntrackMarkInput are the marks of the packet and of its connection.
	MarkInput
	ConntrackMarkInput
	// HeaderInput is what NAT and a transparent proxy change: addresses, ports, checksums, and the
	// socket.
	HeaderInput
	// InterfaceInput is the outgoing interface, which NAT and a changed mark can change.
	InterfaceInput
	// ContentsInput is what conntrack helpers and SYNPROXY change in packets that the host sends,
	// for connections that NAT translates: length, payload, sequence numbers and TCP options.
	ContentsInput
	// StateInput is the states that rules write (see [Unknown.State]), except the condition's own
	// state.
	StateInput
	// NATInput is the existence of NAT chains in the ruleset: with any NAT chain, the kernel sets
	// status bits of all connections.
	NATInput
	// AllInputs is the set of all inputs.
	AllInputs Inputs = 1<<iota - 1
)

// NoData is the Data of an [Unknown] that depends on something that was not read, such as the
// elements of a set that changes.
const NoData = "\x00"

// TraceState is the State of an [Unknown] that determines whether the kernel traces the packet.
const TraceState = "meta nftrace"

// PriorityState is the State of an [Unknown] that sets the priority of the packet.
const PriorityState = "meta priority"

// RoutedHeader is the State of an [Unknown] with the effect WritesHeader if a change of the field
// makes the kernel reroute the packet, as a change of the mark does. These fields are the type of
// service of IPv4, and the traffic class and the hop limit of IPv6 (ipt_mangle_out in
// net/ipv4/netfilter/iptable_mangle.c and ip6t_mangle_out in net/ipv6/netfilter/ip6table_mangle.c).
const RoutedHeader = "routed header"

// Effect describes what an [Unknown] may read or change.
type Effect uint8

// The effects.
const (
	// AnyEffect means all effects: the expression may drop or accept the packet, or change its
	// contents, marks, connection and destination.
	AnyEffect Effect = iota
	// Reads has no side effect. The condition reads a field or state that the model does not
	// represent.
	Reads
	// ReadsVarying has no side effect: the condition depends on random numbers or on earlier
	// packets (for example limit), so it matches some packets of each kind, but not all.
	ReadsVarying
	// ReadsHistory has no side effect: the condition depends on earlier packets, but may match all
	// packets or none (for example a quota that is used up, or a list that is always empty).
	ReadsHistory
	// ReadsAndWrites is ReadsHistory with a side effect: evaluating the condition changes State,
	// which affects later packets in every rule with the same State.
	ReadsAndWrites
	// Writes changes State, such as a label or a list element. Evaluation continues with the next
	// expression of the rule.
	Writes
	// WritesMark sets the packet mark to an unknown value.
	WritesMark
	// WritesConntrackMark sets the conntrack mark to an unknown value.
	WritesConntrackMark
	// WritesHeader changes a part of the header that the model does not represent, which State
	// names. Evaluation continues with the next expression of the rule. The results of two changes
	// are equal if their Text, their Data and their inputs are equal.
	WritesHeader
	// TranslatesSource, in a NAT chain at postrouting, ends the evaluation and changes the source
	// address (SNAT, MASQUERADE). In other chains it is AnyEffect.
	TranslatesSource
)

// IsCondition reports whether an [Unknown] with this effect is a condition without a side effect.
func (e Effect) IsCondition() bool { return e == Reads || e == ReadsVarying || e == ReadsHistory }

func (m Unknown) rank() int { return 14 }
func (Unknown) action()     {}

// String returns the text of the expression, marked as unknown.
func (m Unknown) String() string { return "unknown(" + m.Text + ")" }
