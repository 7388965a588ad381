package diff

// A Fact is a behavior of the kernel that does not depend on the rules and that the evaluator
// relies on. FACTS.md lists all facts, each with its name and the kernel functions that implement
// it.
type Fact string

// The facts that traces print.
const (
	NATDecidesOnce    Fact = "NAT is decided only once for a connection"
	ErrorsSkipNAT     Fact = "ICMP errors related to a connection do not traverse NAT chains"
	NATDropsRedirects Fact = "with a NAT chain for IPv4, the kernel drops, at prerouting and " +
		"output, an ICMP redirect that is related to a translated connection, or to a connection " +
		"whose first packet has not left yet"
	UntrackedSkipsNAT Fact = "packets without a conntrack entry do not traverse NAT chains"
	NATNeedsConntrack Fact = "packets traverse NAT chains only if conntrack is enabled for their " +
		"family; a NAT chain alone does not enable conntrack, and a rule of an inet table that " +
		"translates to an address enables it only for the family of the address"
	ExpectationFollowsMaster Fact = "a connection that a conntrack helper expected uses the NAT " +
		"mapping of its master connection"
	RedirectWithoutAddressDrops Fact = "redirect at prerouting drops packets whose input " +
		"interface has no address of the family"
)

// natSkipFacts contains the reasons why a packet skips NAT chains.
var natSkipFacts = [...]Fact{
	NATDecidesOnce, ErrorsSkipNAT, UntrackedSkipsNAT, NATNeedsConntrack,
	ExpectationFollowsMaster,
}
