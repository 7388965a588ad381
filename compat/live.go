package compat

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"github.com/sluice-mesh/sluice/compat/save"
	"github.com/sluice-mesh/sluice/nft"
	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/nft/route"
	"github.com/sluice-mesh/sluice/rules"
)

// Part names the rules of a namespace by the kind of program that made them.
type Part string

// The parts. Tables of iptables-nft are those of family ip or ip6 that have the name of a table of iptables, and no base chains but those
// that iptables gives it: the same names, in capitals, hooks and priorities. All other tables of nftables are of PartNFT.
const (
	PartAll         Part = ""
	PartNFT         Part = "nft"
	PartIPTablesNFT Part = "iptables-nft"
	PartLegacy      Part = "legacy"
)

// Live is what decides about the packets of a namespace.
type Live struct {
	// Ruleset has the routing of the namespace, whoever made it, and the tables of the part: of nftables the one made last first, then
	// those of iptables-legacy. The comments of tables of iptables say which of the two they are of. BaseChains has the order of the
	// kernel, as far as it is known. Rules of nftables have their handles as positions, those of iptables-legacy their numbers in the
	// chain.
	Ruleset rules.Ruleset
	// Ambiguous are the chains with rules of which the order is not known, hook by hook. BaseChains has one that is possible.
	Ambiguous []Ambiguity
	// Others are functions that the kernel calls at prerouting and output besides, of BPF programs for instance, as far as the
	// kernel lists them ([nft.Hooks]). What they do to packets is not known.
	Others []nft.HookFunction
}

// maxLiveReads bounds how often ReadLive starts anew because somebody wrote meanwhile.
const maxLiveReads = 100

// errLiveBusy tells that the rules kept changing.
var errLiveBusy = errors.New("the rules changed during each of many readings: another process writes without pause")

// ReadLive returns what decides about packets in the namespace (nil: the current one), or the part of it, in the order in which the
// kernel runs it. It is of one moment, also while others write.
//
// At equal priority the kernel runs first what was registered last. It tells the order only in its list of hooks ([nft.Hooks]), if it has
// that; and there, up to Linux 7.2, not that of NAT. What is not known is in Live.Ambiguous.
//
// It creates no table, of either kind, and none is read that does not exist. The kernel loads no module of xtables; it may load nf_tables
// and the list of hooks, which do nothing to packets by themselves. It needs what [nft.ReadAll] and [ReadTables] need.
func ReadLive(ns *netns.NS, part Part) (Live, error) {
	live, err := readLive(ns, part)
	if err != nil {
		return Live{}, fmt.Errorf("read the rules of the namespace: %w", err)
	}
	return live, nil
}

func readLive(ns *netns.NS, part Part) (Live, error) {
	if !slices.Contains([]Part{PartAll, PartNFT, PartIPTablesNFT, PartLegacy}, part) {
		return Live{}, fmt.Errorf("%q is no part: want nft, iptables-nft, legacy or nothing", part)
	}
	before, err := readSurroundings(ns, part)
	for range maxLiveReads {
		if err != nil {
			return Live{}, err
		}
		var rs rules.Ruleset
		if rs, err = readNFTables(ns, part); err != nil {
			return Live{}, err
		}
		var after surroundings
		after, err = readSurroundings(ns, part)
		if err == nil && before.equal(after) && after.list(rs) {
			return after.join(rs, part), nil
		}
		before = after
	}
	return Live{}, errors.Join(errLiveBusy, err)
}

// readNFTables returns all tables of nftables, and the routing, whoever made it. A kernel without nftables has no tables.
func readNFTables(ns *netns.NS, part Part) (rules.Ruleset, error) {
	var rs rules.Ruleset
	var err error
	if part != PartLegacy {
		if rs, err = nft.ReadAll(ns); err != nil && !nft.IsNotSupported(err) {
			return rs, err
		}
	}
	rs.Routing, err = route.ReadAll(ns)
	return rs, err
}

// surroundings are what is read beside the tables of nftables: before and after them, since nothing else tells whether it has changed.
type surroundings struct {
	legacy []rules.Table
	// hooks is nil where the kernel does not list them.
	hooks []nft.HookList
}

func readSurroundings(ns *netns.NS, part Part) (surroundings, error) {
	var s surroundings
	var err error
	for range maxLiveReads {
		if part == PartAll || part == PartLegacy {
			// A table that goes between two looks is a change like any other.
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

func (s surroundings) equal(other surroundings) bool {
	sameList := func(a, b nft.HookList) bool {
		return a.Family == b.Family && a.Hook == b.Hook && slices.Equal(a.Functions, b.Functions)
	}
	return slices.EqualFunc(s.hooks, other.hooks, sameList) && rules.Equal(rules.Ruleset{Tables: s.legacy}, rules.Ruleset{Tables: other.legacy})
}

// list tells whether the hooks, if there are any, have all chains of the tables of nftables but those of NAT.
func (s surroundings) list(rs rules.Ruleset) bool {
	o := newHookOrder(s.hooks)
	for _, h := range liveHooks {
		for _, c := range rs.BaseChains(h) {
			if s.hooks != nil && c.Chain.Base.Type != rules.NAT && !o.has(h, chainID{table: c.Table.Name, chain: c.Chain.Name, family: c.Table.Family}) {
				return false
			}
		}
	}
	return true
}

// join puts together what was read.
func (s surroundings) join(rs rules.Ruleset, part Part) Live {
	for i := range rs.Tables {
		if t := &rs.Tables[i]; isIPTablesNFT(t) {
			t.Comment = "iptables-nft"
		}
	}
	rs.Tables = slices.DeleteFunc(rs.Tables, func(t rules.Table) bool {
		return part != PartAll && isIPTablesNFT(&t) != (part == PartIPTablesNFT)
	})
	first := len(rs.Tables)
	rs.Tables = append(rs.Tables, s.legacy...)
	for i := range rs.Tables[first:] {
		rs.Tables[first+i].Comment = legacyComment
	}
	live := Live{Ruleset: rs}
	live.Ambiguous = orderLive(&live.Ruleset, first, newHookOrder(s.hooks))
	for _, l := range s.hooks {
		for _, f := range l.Functions {
			if f.Kind == nft.HookOther && !slices.Contains(live.Others, f) {
				live.Others = append(live.Others, f)
			}
		}
	}
	return live
}

// legacyComment is that of the tables of iptables-legacy.
const legacyComment = "iptables-legacy"

// IsLegacy tells whether a table that ReadLive returned is one of iptables-legacy, so that the position of a rule is its number in the chain.
func IsLegacy(t *rules.Table) bool { return t.Comment == legacyComment }

// isIPTablesNFT tells whether iptables-nft made the table, by its form.
func isIPTablesNFT(t *rules.Table) bool {
	if t.Family == rules.Inet || !slices.Contains([]string{"raw", "mangle", "nat", "filter", "security"}, t.Name) {
		return false
	}
	for _, c := range t.Chains {
		if c.Base == nil {
			continue
		}
		built := save.Base(t.Name, c.Base.Hook, c.Base.Drop)
		built.Order = c.Base.Order
		if t.Name == "security" {
			built.Priority = securityPriorityNFT
		}
		if hook, ok := save.HookOf(t.Name, c.Name); !ok || hook != c.Base.Hook || *c.Base != *built {
			return false
		}
	}
	return true
}

// securityPriorityNFT is where iptables-nft has its table security (nft_base_chain in iptables/nft.c), unlike the kernel iptables-legacy's.
const securityPriorityNFT = 150
