package doctor

import (
	"net/netip"

	"github.com/sluice-mesh/sluice/compat"
	"github.com/sluice-mesh/sluice/nft"
	"github.com/sluice-mesh/sluice/rules"
)

// Facts are what is to be known of a namespace and its kernel. The error of a fact says why that
// fact is missing.
type Facts struct {
	// Kernel is the release of the running kernel, such as 6.18.44.
	Kernel string
	// Features are those of nft.Probe.
	Features    []nft.Support
	FeaturesErr error
	// LegacyFeatures are what the ruleset needs of iptables-legacy, with the kernel's answers; none
	// if it could not be asked.
	LegacyFeatures []nft.Support
	// Backend is the one that is to have the rules: compat.BackendNFT, compat.BackendLegacy, or any
	// other text for what the kernel supports.
	Backend compat.BackendName
	// Settings are the namespace's sysctls under net, by their names: net.ipv4.conf.all.rp_filter.
	// Of those that the kernel does not have there is none.
	Settings    map[string]string
	SettingsErr error

	Interfaces    []Interface
	Routing       RoutingFacts
	InterfacesErr error // of Interfaces and Routing

	// Tables are those of nf_tables, all owners', the one made last first: so the kernel runs
	// chains of equal priority.
	Tables    []rules.Table
	TablesErr error
	// Legacy are the tables of iptables-legacy and ip6tables-legacy.
	Legacy    []LegacyTable
	LegacyErr error

	// Foreign is what rules of other owners, of every backend and table, do to the traffic that the
	// ruleset captures; nil if that was not asked.
	Foreign *ForeignEffect
}

// A ForeignEffect is what rules of other owners do to captured traffic, in sentences.
type ForeignEffect struct {
	// Bypasses names the packets that bypass the proxy, with the rule by which they do. Unknown
	// lists what is not known and decides about captured packets.
	Bypasses, Unknown []string
}

// Interface is a network interface.
type Interface struct {
	Name  string
	Up    bool
	Addrs []netip.Addr
}

// RoutingFacts are the policy rules, and what is in the tables that they look up.
type RoutingFacts struct {
	Rules []PolicyRule
	// Routes are those of tables other than the kernel's own.
	Routes []Route
}

// PolicyRule is a policy rule as the ip command knows them.
type PolicyRule struct {
	Family     rules.Family
	Priority   int
	Table      uint32
	Mark, Mask uint32 // a mask of 0 is no selector
	// Selected reports that the rule asks for more than the mark.
	Selected bool
	// Text is the rule for people.
	Text string
}

// Route is a route of some table.
type Route struct {
	Family  rules.Family
	Table   uint32
	Default bool // of all destinations
	// Local reports that it is "local … dev lo".
	Local bool
	Text  string
}

// LegacyTable is a table of iptables-legacy.
type LegacyTable struct {
	Family rules.Family
	Name   string // "nat"
	// Chains are those that somebody made besides the built-in ones; Rules counts all rules but the
	// built-in chains' policies.
	Chains []string
	Rules  int
	// Err is why the content is not known.
	Err error
}

// setting returns the value of a sysctl, and whether there is one.
func (f *Facts) setting(name string) (string, bool) {
	value, ok := f.Settings[name]
	return value, ok
}

// ours returns our own table, if it is there.
func (f *Facts) ours() *rules.Table {
	for i := range f.Tables {
		if f.Tables[i].Family == rules.Inet && f.Tables[i].Name == rules.TableName {
			return &f.Tables[i]
		}
	}
	return nil
}
