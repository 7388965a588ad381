package compat

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/sluice-mesh/sluice/compat/save"
	"github.com/sluice-mesh/sluice/nft"
	"github.com/sluice-mesh/sluice/nft/bridge"
	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/nft/route"
	"github.com/sluice-mesh/sluice/rules"
)

// Origin is the kind of program that created rules of a namespace.
type Origin string

// The origins. A table of family ip or ip6 is assumed to belong to iptables-nft if it has the name
// of an iptables table, and all its base chains have the names, types, hooks and priorities of
// iptables. All other tables of nf_tables have OriginNFT.
const (
	OriginAll         Origin = "" // all of the following origins
	OriginNFT         Origin = "nft"
	OriginIPTablesNFT Origin = "iptables-nft"
	OriginLegacy      Origin = "legacy"
	// OriginNFTables is OriginNFT and OriginIPTablesNFT.
	OriginNFTables Origin = "nf_tables"
)

// includesNFT reports whether the origin includes a table of nf_tables. isIPTables is set for a
// table of iptables-nft.
func (o Origin) includesNFT(isIPTables bool) bool {
	switch o {
	case OriginNFT:
		return !isIPTables
	case OriginIPTablesNFT:
		return isIPTables
	}
	return o != OriginLegacy
}

// Live contains the rules and routes of a namespace.
type Live struct {
	// Ruleset contains all routing of the namespace and the tables of the origin: first the tables
	// of nf_tables, the newest first, then the tables of iptables-legacy. The comment of a table of
	// iptables names the variant; other tables have no comment. BaseChains returns chains in the
	// kernel's order, as far as it is known. Rules of nf_tables have their handles.
	Ruleset rules.Ruleset
	// Ambiguous contains the chains of unknown order, by hook. BaseChains returns one possible
	// order of these chains. Chains without an effect are omitted.
	Ambiguous []Ambiguity
	// OtherFunctions contains the functions of unknown effect on packets, such as BPF programs,
	// that the kernel calls at prerouting, output and postrouting. It is empty if the kernel does
	// not list hook functions ([nft.Hooks]).
	OtherFunctions []nft.HookFunction
	// UnmodeledChains describes the chains of nf_tables with rules that are not in Ruleset because
	// their family is not ip, ip6 or inet, or because they are attached to a device. Their effect
	// on packets is unknown. It is empty for OriginIPTablesNFT and OriginLegacy.
	UnmodeledChains []string
	// HasOwnedTable reports that a process owns a table of nf_tables ([nft.Snapshot]). The rules
	// may then change without an event. It is false for OriginLegacy.
	HasOwnedTable bool
	// UnmodeledRoutes describes the policy rules that are not in Ruleset ([route.Unmodeled]).
	UnmodeledRoutes []string
	// LoopbackRoutes describes routes that send packets over the loopback interface or encapsulate
	// packets ([route.OverLoopback]).
	LoopbackRoutes route.LoopbackRoutes
	// UndeliveredLoopback describes routes that send packets to loopback addresses to another host
	// ([route.UndeliveredLoopback]), and PrecedingLocal the policy rules that may do so
	// ([route.PrecedingLocal]).
	UndeliveredLoopback, PrecedingLocal []route.Description
	// Addresses are the addresses of all interfaces.
	Addresses []netip.Addr
	// BridgePorts are the ports of bridges whose packets traverse the hooks of IP inside the bridge
	// ([bridge.FilteredPorts]).
	BridgePorts []bridge.Port
	// AlwaysSendsCookies reports whether the namespace answers each SYN with a SYN cookie: the sysctl
	// [SynCookiesSysctl] is 2.
	AlwaysSendsCookies bool
	// LoopbackName is the name of the loopback interface. If it is not lo, rules that match the
	// interface lo do not match packets of the loopback interface.
	LoopbackName string
}

// UndecidedEffects returns a sentence for each fact whose effect on packets the model does not
// know. It omits UnmodeledChains and UnmodeledRoutes.
func (l *Live) UndecidedEffects() []string {
	var sentences []string
	for _, f := range l.OtherFunctions {
		sentences = append(sentences,
			"the effect of this kernel function on packets is unknown: "+f.String())
	}
	if l.LoopbackName != "lo" {
		sentences = append(sentences, fmt.Sprintf("the loopback interface has the name %q, "+
			"so that rules for the interface lo do not match it, and may match another interface",
			l.LoopbackName))
	}
	return sentences
}

// maxLiveReads and maxLiveReadTime bound the repetitions of a read while other processes write. A
// read takes about a millisecond, or seconds if a process of the pod has added very many rules.
const (
	maxLiveReads    = 100
	maxLiveReadTime = 10 * time.Second
)

// errLiveBusy is the error of ReadLive if the rules changed during every attempt.
var errLiveBusy = errors.New(
	"the rules changed during every attempt to read them: another process writes continuously")

// ReadLive returns the rules of the origin in the namespace (nil: the current one), in the order in
// which the kernel evaluates them. The rules are a consistent snapshot, even while other processes
// write. At equal priority the chain registered last runs first. The kernel shows this order only
// in its lists of hook functions ([nft.Hooks]). Older kernels lack these lists, and kernels up to
// Linux 7.2 omit NAT chains from them. Live.Ambiguous contains the chains whose order is unknown.
// ReadLive creates no table and loads no module of xtables. The kernel may load the modules
// nf_tables and nfnetlink_hook, which have no effect on packets. ReadLive needs the privileges of
// [nft.ReadAll] and [ReadTables].
func ReadLive(ns *netns.NS, origin Origin) (Live, error) {
	return readLive(ns, origin, nft.ReadOptions{})
}

// ReadLiveUntilChange is like [ReadLive], but treats the members of sets whose elements may expire
// as unknown. The result therefore remains valid until a process changes the rules.
func ReadLiveUntilChange(ns *netns.NS, origin Origin) (Live, error) {
	return readLive(ns, origin, nft.ReadOptions{UntilChange: true})
}

func readLive(ns *netns.NS, origin Origin, o nft.ReadOptions) (Live, error) {
	live, err := readUnchanged(ns, origin, o)
	if err != nil {
		return Live{}, fmt.Errorf("read the rules of the namespace: %w", err)
	}
	return live, nil
}

// readUnchanged reads the namespace until no rules change during a read.
func readUnchanged(ns *netns.NS, origin Origin, o nft.ReadOptions) (Live, error) {
	if !slices.Contains([]Origin{
		OriginAll, OriginNFT, OriginIPTablesNFT, OriginLegacy, OriginNFTables,
	}, origin) {
		return Live{}, fmt.Errorf("%q is not an origin of rules: "+
			"must be nft, iptables-nft, legacy, nf_tables or empty", origin)
	}
	before, err := readNamespaceState(ns, origin)
	start := time.Now()
	for reads := 0; reads < maxLiveReads && time.Since(start) < maxLiveReadTime; reads++ {
		if err != nil {
			return Live{}, err
		}
		var found nft.Snapshot
		if found, err = readNFTables(ns, origin, o); err != nil {
			return Live{}, err
		}
		rs := found.Ruleset
		var after namespaceState
		after, err = readNamespaceState(ns, origin)
		if err == nil && before.equal(after) && after.listsAllChains(rs) {
			live := after.toLive(rs, origin)
			var errs [8]error
			live.LoopbackName, errs[0] = route.LoopbackName(ns)
			live.UnmodeledRoutes, errs[1] = route.Unmodeled(ns)
			live.LoopbackRoutes, errs[2] = route.OverLoopback(ns)
			live.PrecedingLocal, errs[3] = route.PrecedingLocal(ns)
			live.UndeliveredLoopback, errs[4] = route.UndeliveredLoopback(ns)
			live.Addresses, errs[5] = route.AllAddresses(ns)
			live.BridgePorts, errs[6] = bridge.FilteredPorts(ns)
			live.AlwaysSendsCookies, errs[7] = AlwaysSendsCookies(ns)
			if err := cmp.Or(errs[:]...); err != nil {
				return Live{}, err
			}
			live.HasOwnedTable = found.HasOwnedTable
			if origin.includesNFT(false) {
				for _, c := range found.UnmodeledChains {
					live.UnmodeledChains = append(live.UnmodeledChains, c.String())
				}
			}
			return live, nil
		}
		before = after
	}
	return Live{}, errors.Join(errLiveBusy, err)
}

// SynCookiesSysctl is the sysctl that enables SYN cookies.
const SynCookiesSysctl = "net.ipv4.tcp_syncookies"

// AlwaysSendsCookies reports whether [SynCookiesSysctl] is 2 in the namespace (nil: the current
// one). A kernel without SYN cookies lacks the sysctl.
func AlwaysSendsCookies(ns *netns.NS) (always bool, err error) {
	err = ns.Do(func() error {
		value, err := os.ReadFile("/proc/sys/" + strings.ReplaceAll(SynCookiesSysctl, ".", "/"))
		always = string(bytes.TrimSpace(value)) == "2"
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	})
	return always, err
}

// readNFTables returns all routing, and all tables of nf_tables unless the origin is legacy. A
// kernel without nf_tables has no tables.
func readNFTables(ns *netns.NS, origin Origin, o nft.ReadOptions) (nft.Snapshot, error) {
	var found nft.Snapshot
	var err error
	if origin != OriginLegacy {
		if found, err = nft.ReadAllTables(ns, o); err != nil && !nft.IsNotSupported(err) {
			return found, err
		}
	}
	found.Routing, err = route.ReadAll(ns)
	return found, err
}

// namespaceState contains state that is read before and after the nftables tables, to detect
// changes.
type namespaceState struct {
	legacy []rules.Table
	// hooks is nil if the kernel does not list hook functions.
	hooks []nft.HookList
}

// readNamespaceState reads the lists of hook functions and, if the origin includes them, the tables
// of iptables-legacy.
func readNamespaceState(ns *netns.NS, origin Origin) (namespaceState, error) {
	var s namespaceState
	var err error
	start := time.Now()
	for reads := 0; reads < maxLiveReads && time.Since(start) < maxLiveReadTime; reads++ {
		if origin == OriginAll || origin == OriginLegacy {
			// A table that is removed between two reads is a change too.
			if s.legacy, err = ReadTables(ns); errors.Is(err, fs.ErrNotExist) {
				continue
			} else if err != nil {
				return s, err
			}
		}
		if s.hooks, err = nft.Hooks(ns); nft.IsNotSupported(err) {
			return s, nil
		}
		return s, err
	}
	return s, errors.Join(errLiveBusy, err)
}

func (s namespaceState) equal(other namespaceState) bool {
	sameList := func(a, b nft.HookList) bool {
		return a.Family == b.Family && a.Hook == b.Hook && slices.Equal(a.Functions, b.Functions)
	}
	return slices.EqualFunc(s.hooks, other.hooks, sameList) &&
		rules.Equal(rules.Ruleset{Tables: s.legacy}, rules.Ruleset{Tables: other.legacy})
}

// listsAllChains reports whether the lists of hook functions, if the kernel has them, contain all
// base chains of nf_tables at liveHooks except NAT chains.
func (s namespaceState) listsAllChains(rs rules.Ruleset) bool {
	o := newHookOrder(s.hooks)
	for _, h := range liveHooks {
		for _, c := range rs.BaseChains(h) {
			if s.hooks != nil && c.Chain.Base.Type != rules.NAT &&
				!o.listsChain(h, chainID{
					table: c.Table.Name, chain: c.Chain.Name, family: c.Table.Family,
				}) {
				return false
			}
		}
	}
	return true
}

// toLive returns the Ruleset, Ambiguous and OtherFunctions of the result of ReadLive. rs contains
// the tables of nf_tables and the routing.
func (s namespaceState) toLive(rs rules.Ruleset, origin Origin) Live {
	for i := range rs.Tables {
		t := &rs.Tables[i]
		t.Comment = "" // any process of the namespace can set the comment
		if isIPTablesNFT(t) {
			t.Comment = string(OriginIPTablesNFT)
		}
	}
	rs.Tables = slices.DeleteFunc(rs.Tables, func(t rules.Table) bool {
		return !origin.includesNFT(isIPTablesNFT(&t))
	})
	firstLegacy := len(rs.Tables)
	rs.Tables = append(rs.Tables, s.legacy...)
	for i := range rs.Tables[firstLegacy:] {
		rs.Tables[firstLegacy+i].Comment = BackendLegacy.String()
	}
	live := Live{Ruleset: rs}
	live.Ambiguous = orderLive(&live.Ruleset, firstLegacy, newHookOrder(s.hooks))
	for _, l := range s.hooks {
		for _, f := range l.Functions {
			if f.Kind == nft.HookOther && !slices.Contains(live.OtherFunctions, f) {
				live.OtherFunctions = append(live.OtherFunctions, f)
			}
		}
	}
	return live
}

// IsLegacyTable reports whether a table of ReadLive is a table of iptables-legacy. The rules of
// such a table have no handles, and are identified by their number in the chain.
func IsLegacyTable(t *rules.Table) bool { return t.XTables }

// IsSluiceTable reports whether the table is Sluice's table in nf_tables.
func IsSluiceTable(t *rules.Table) bool {
	return t.Family == rules.Inet && t.Name == rules.TableName
}

// isIPTablesNFT reports whether the table looks like a table of iptables-nft.
func isIPTablesNFT(t *rules.Table) bool {
	if t.Family == rules.Inet ||
		!slices.Contains([]string{"raw", "mangle", "nat", "filter", "security"}, t.Name) {
		return false
	}
	for _, c := range t.Chains {
		if c.Base == nil {
			continue
		}
		expected := save.Base(t.Name, c.Base.Hook, c.Base.Drop)
		expected.Order = c.Base.Order
		if t.Name == "security" {
			expected.Priority = securityPriorityNFT
		}
		if hook, ok := save.HookOf(t.Name, c.Name); !ok || hook != c.Base.Hook ||
			*c.Base != *expected {
			return false
		}
	}
	return true
}

// securityPriorityNFT is the priority of iptables-nft's table security (nft_base_chain in
// iptables/nft.c). In iptables-legacy, the priority is 50.
const securityPriorityNFT = 150
