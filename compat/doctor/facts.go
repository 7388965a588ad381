package doctor

import (
	"net/netip"

	"github.com/sluice-mesh/sluice/compat"
	"github.com/sluice-mesh/sluice/compat/bpf"
	"github.com/sluice-mesh/sluice/compat/foreign"
	"github.com/sluice-mesh/sluice/nft"
	"github.com/sluice-mesh/sluice/nft/route"
	"github.com/sluice-mesh/sluice/nft/xfrm"
	"github.com/sluice-mesh/sluice/rules"
	"github.com/sluice-mesh/sluice/rules/diff"
)

// Facts describe a namespace and its kernel. If facts could not be read, the field with the suffix
// Err after them contains the reason.
type Facts struct {
	// Kernel is the release of the running kernel, such as 6.18.44.
	Kernel string
	// Features are the results of nft.Probe.
	Features    []nft.Support
	FeaturesErr error
	// LegacyFeatures are the results of probing the features of iptables-legacy that the desired
	// ruleset needs. The list is empty if they could not be probed.
	LegacyFeatures []nft.Support
	// Backend is the desired backend. Any value other than compat.BackendNFT and
	// compat.BackendLegacy means the first backend that the kernel supports.
	Backend compat.BackendName
	// Budget limits each decision of the diagnosis.
	Budget diff.Budget
	// Settings are the values of the relevant sysctls of the namespace by name, such as
	// net.ipv4.conf.all.src_valid_mark. Sysctls that the kernel lacks are missing.
	Settings    map[string]string
	SettingsErr error

	Interfaces  []Interface
	PolicyRules []route.Rule
	// Routes are the routes of all tables except main, local and default.
	Routes []route.Route
	// Lookups are answers of the kernel about the routes of packets.
	Lookups       RouteLookups
	InterfacesErr error // of Interfaces, PolicyRules, Routes and Lookups
	// IPsec are the IPsec policies that drop packets.
	IPsec    []xfrm.Drop
	IPsecErr error
	// Interrupted contains the kinds of objects whose lists may be incomplete, because other
	// processes changed them during each attempt to read them: interfaces, addresses, policy rules
	// or routes.
	Interrupted []string

	// IPv6Bypass is the node agent's message about IPv6 traffic that bypasses the proxy because the
	// pod's addresses have changed. It is empty if there is no such traffic.
	IPv6Bypass string
	// IPv6Unknown is the reason why the node agent cannot decide whether there is such traffic.
	IPv6Unknown string

	// Tables are all tables of nf_tables, the newest first. The kernel runs chains with equal
	// priority in this order.
	Tables    []rules.Table
	TablesErr error
	// Legacy contains the tables of iptables-legacy and ip6tables-legacy.
	Legacy    []LegacyTable
	LegacyErr error

	// Foreign is the effect of foreign rules in all backends and tables on the traffic that the
	// ruleset captures. It is nil if the effect was not determined.
	Foreign *foreign.Effect

	// If exactly one backend has rules of Sluice, Drift contains the differences of these rules and
	// of Sluice's routes from the ruleset. Otherwise it is empty. DriftErr is the reason why the
	// differences are unknown or incomplete.
	Drift    []rules.Difference
	DriftErr error
	// DriftEffect is the effect of all rules in the namespace, including Sluice's, on the traffic
	// that the ruleset captures. It is nil if Drift is empty.
	DriftEffect *foreign.Effect

	// Programs are the eBPF programs that see the traffic outside netfilter.
	Programs bpf.Listing
	// Sockets are packet sockets and raw IP sockets of the namespace. SocketsErr is the reason why
	// some are missing, or why the processes of some are unknown.
	Sockets    []RawSocket
	SocketsErr error
}

// Interface is a network interface.
type Interface struct {
	Name  string
	Up    bool
	Addrs []netip.Addr
}

// LegacyTable is a table of iptables-legacy.
type LegacyTable struct {
	Family rules.Family
	Name   string // "nat"
	// Chains are the user-defined chains. Rules is the number of rules in all chains, not counting
	// the policies of built-in chains.
	Chains []string
	Rules  int
	// Content is the table with its rules, or nil if the content is unknown.
	Content *rules.Table
	// Err is the reason why the content is unknown.
	Err error
}

// sluiceTable returns Sluice's table in nf_tables, or nil.
func (f *Facts) sluiceTable() *rules.Table {
	for i := range f.Tables {
		if compat.IsSluiceTable(&f.Tables[i]) {
			return &f.Tables[i]
		}
	}
	return nil
}
