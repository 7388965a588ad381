package foreign

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/sluice-mesh/sluice/compat"
	"github.com/sluice-mesh/sluice/compat/xtables"
	"github.com/sluice-mesh/sluice/nft/bridge"
	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/nft/route"
	"github.com/sluice-mesh/sluice/nft/trace"
	"github.com/sluice-mesh/sluice/rules"
	"github.com/sluice-mesh/sluice/rules/diff"
)

// A Snapshot is an effect at one time. [Snapshot.IsValid] checks later whether it is still valid.
type Snapshot struct {
	Effect
	// Traced reports whether the namespace has the rules of a trace. A killed process may have left
	// these rules.
	Traced bool
	// hasOwnedTable reports that a process owns a table of nf_tables. The agent gets no event when
	// the process ends and the kernel deletes the table.
	hasOwnedTable bool
	legacy        xtables.Digest // of the iptables-legacy tables
	// loopback is the name of the loopback interface, and undelivered describes routes to loopback
	// addresses. The agent gets no event when they change.
	loopback    string
	undelivered []route.Description
	// routes contains the routes that encapsulate packets or have the passthrough address as
	// source, and the other routes over lo. The latter are compared if dependsOnRoutes is set.
	// addresses contains the addresses of the interfaces, which are compared if dependsOnAddresses
	// is set. The agent gets no event when an address or a route in the table main or local
	// changes.
	routes             route.LoopbackRoutes
	dependsOnRoutes    bool
	addresses          []netip.Addr
	dependsOnAddresses bool
	// bridgePorts and alwaysSendsCookies are compared if usesTProxy is set. The agent gets no event
	// when bridges or sysctls change.
	bridgePorts        []bridge.Port
	alwaysSendsCookies bool
	usesTProxy         bool
}

// Inspect reads all live rules of the namespace (nil: the current one), and returns the effect of
// the foreign rules on the traffic that the desired ruleset captures. If rules cannot be read, the
// effect is unknown. Sluice's rules must be equal to the desired ruleset: compare them before. The
// budget bounds the work of the decision.
func Inspect(ns *netns.NS, desired rules.Ruleset, b diff.Budget) Snapshot {
	return inspect(ns, desired, b, Decide)
}

// InspectDrifted is like [Inspect], but Sluice's rules may differ from the desired ruleset, or be
// missing. It returns the effect of all live rules, including Sluice's. The owner of a bypass that
// Sluice's rules decide is [OwnerSluice]. If no rule decides a bypass, the bypass has no owner.
func InspectDrifted(ns *netns.NS, desired rules.Ruleset, b diff.Budget) Snapshot {
	return inspect(ns, desired, b, decideAll)
}

// inspect reads the live rules, and returns the result of decide for them.
func inspect(
	ns *netns.NS, desired rules.Ruleset, b diff.Budget,
	decide func(compat.Live, rules.Ruleset, diff.Budget) Effect,
) Snapshot {
	var s Snapshot
	var err error
	if s.legacy, err = xtables.DigestTables(ns); err != nil {
		return Snapshot{Effect: unreadable(err)}
	}
	live, err := compat.ReadLiveUntilChange(ns, compat.OriginAll)
	if err != nil {
		return Snapshot{Effect: unreadable(err)}
	}
	s.Traced = slices.ContainsFunc(live.Ruleset.Tables, func(t rules.Table) bool {
		return t.Name == trace.Table && t.Family == rules.Inet || t.Chain(trace.Chain) != nil
	})
	s.hasOwnedTable = live.HasOwnedTable
	s.loopback, s.undelivered = live.LoopbackName, live.UndeliveredLoopback
	s.routes, s.addresses = live.LoopbackRoutes, live.Addresses
	s.dependsOnRoutes = reroutingStep(&live) != nil
	s.dependsOnAddresses = s.dependsOnRoutes || translatesDestinations(&live) || masquerades(&live)
	s.bridgePorts, s.alwaysSendsCookies = live.BridgePorts, live.AlwaysSendsCookies
	s.usesTProxy = usesTProxy(&desired)
	s.Effect = decide(live, desired, b)
	return s
}

// InspectAsInstalled is like [Inspect], but the namespace may lack Sluice's rules, or contain rules
// of other parameters. It returns the effect that the foreign rules will have when the desired
// ruleset is installed. Sluice's rules in iptables-legacy tables are assumed to be as desired;
// [InspectDrifted] shows the effect of differences.
func InspectAsInstalled(ns *netns.NS, desired rules.Ruleset, b diff.Budget) Effect {
	live, err := compat.ReadLiveUntilChange(ns, compat.OriginAll)
	if err != nil {
		return unreadable(err)
	}
	tables := live.Ruleset.Tables
	if i := slices.IndexFunc(tables, isSluiceTable); i >= 0 {
		others := slices.Concat(tables[:i], tables[i+1:])
		live.Ruleset.Tables = slices.Concat(tables[:i], inOrder(desired.Tables, &tables[i], others),
			tables[i+1:])
		live.Ruleset.Routing = desired.Routing
	} else if !hasSluiceRules(&live.Ruleset) {
		added := inOrder(desired.Tables, &rules.Table{}, tables)
		live.Ruleset.Tables = slices.Concat(added, tables) // newest first
		live.Ruleset.Routing = desired.Routing
	}
	return Decide(live, desired, b)
}

// inOrder returns the desired tables with the order that their base chains will have among the
// chains of the other tables. A chain that is installed at the same hook, with the same type and
// priority, keeps its order, and shares its Base with the installed chain, because [Decide] tries
// all possible orders of installed chains. Any other chain will be registered, and runs before the
// chains that have the same priority.
func inOrder(desired []rules.Table, installed *rules.Table, others []rules.Table) []rules.Table {
	tables := slices.Clone(desired)
	for i := range tables {
		tables[i].Chains = slices.Clone(tables[i].Chains)
		for j := range tables[i].Chains {
			c := &tables[i].Chains[j]
			if c.Base == nil {
				continue
			}
			base := *c.Base
			if existing := installed.Chain(c.Name); existing != nil && existing.Base != nil &&
				existing.Base.Hook == base.Hook && existing.Base.Type == base.Type &&
				existing.Base.Priority == base.Priority {
				existing.Base.Drop = base.Drop
				c.Base = existing.Base
				continue
			}
			base.Order = lastOrderBefore(&base, others)
			c.Base = &base
		}
	}
	return tables
}

// lastOrderBefore returns the highest order of the chains that have the position of the base and a
// lower priority, or 0. Only NAT chains can have the same position and different priorities. NAT
// chains with equal orders run by priority.
func lastOrderBefore(base *rules.Base, tables []rules.Table) int {
	last := 0
	for _, t := range tables {
		for _, c := range t.Chains {
			if b := c.Base; b != nil && b.Hook == base.Hook && b.Position() == base.Position() &&
				b.Priority < base.Priority {
				last = max(last, b.Order)
			}
		}
	}
	return last
}

func isSluiceTable(t rules.Table) bool { return compat.IsSluiceTable(&t) }

// IsValid reports whether a snapshot of the namespace is still valid. The caller must know that the
// nftables rules, the policy routes and the desired ruleset have not changed. IsValid compares the
// facts whose changes cause no event:
//   - the iptables-legacy tables
//   - the name of the loopback interface, and the routes to loopback addresses
//   - the routes that encapsulate packets, or have the passthrough address as source
//   - the routes over lo, if foreign rules may route packets again
//   - the addresses, if foreign rules may route packets again, translate destinations or masquerade
//   - the ports of bridges and the sysctl of SYN cookies, if the interception mode is TPROXY
//
// A snapshot is never valid if the inspection failed or used up its budget (Exhausted), or if the
// namespace has the rules of a trace or a table that a process owns.
func (s *Snapshot) IsValid(ns *netns.NS) bool {
	if s.Exhausted || s.Traced || s.hasOwnedTable {
		return false
	}
	isValid := false
	err := ns.Do(func() error { // enter the namespace once for all reads
		isValid = s.isValidHere()
		return nil
	})
	return err == nil && isValid
}

// isValidHere is like [Snapshot.IsValid] for the namespace of the thread.
func (s *Snapshot) isValidHere() bool {
	current, err := xtables.DigestTables(nil)
	if err != nil || current != s.legacy {
		return false
	}
	routes, err := route.OverLoopback(nil)
	if err != nil || !slices.Equal(routes.Encapsulating, s.routes.Encapsulating) ||
		!slices.Equal(routes.Passthrough, s.routes.Passthrough) ||
		s.dependsOnRoutes && !slices.Equal(routes.OverLoopback, s.routes.OverLoopback) {
		return false
	}
	if s.dependsOnAddresses {
		if addresses, err := route.AllAddresses(nil); err != nil ||
			!slices.Equal(addresses, s.addresses) {
			return false
		}
	}
	if s.usesTProxy {
		ports, err := bridge.FilteredPorts(nil)
		if err != nil || !slices.Equal(ports, s.bridgePorts) {
			return false
		}
		always, err := compat.AlwaysSendsCookies(nil)
		if err != nil || always != s.alwaysSendsCookies {
			return false
		}
	}
	undelivered, err := route.UndeliveredLoopback(nil)
	if err != nil || !slices.Equal(undelivered, s.undelivered) {
		return false
	}
	loopback, err := route.LoopbackName(nil)
	return err == nil && loopback == s.loopback
}

// unreadable returns the effect of rules that cannot be read.
func unreadable(err error) Effect {
	return Effect{
		Bypasses: []Bypass{}, // not null in JSON
		Unknown:  []string{fmt.Sprintf("foreign rules cannot be read: %v", err)}, Exhausted: true,
	}
}
