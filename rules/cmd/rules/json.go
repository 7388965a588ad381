package main

import (
	"net/netip"

	"github.com/sluice-mesh/sluice/rules"
)

// jsonVersion changes if a reader of the older form would misinterpret the newer form. New fields
// and values do not change it.
const jsonVersion = 1

// The JSON form of a ruleset. The help topic "json" describes it.
type (
	jsonRuleset struct {
		Version int `json:"version"`
		rulesetDocument
	}
	rulesetDocument struct {
		Time    string      `json:"time,omitempty"`
		Tables  []jsonTable `json:"tables"`
		Routing jsonRouting `json:"routing"`
	}
	jsonTable struct {
		Family string      `json:"family"`
		Name   string      `json:"name"`
		Sets   []jsonSet   `json:"sets,omitempty"`
		Chains []jsonChain `json:"chains"`
	}
	jsonSet struct {
		Name     string   `json:"name"`
		Family   string   `json:"family"`
		Elements []string `json:"elements"`
	}
	jsonChain struct {
		Name     string     `json:"name"`
		Type     string     `json:"type,omitempty"`
		Hook     string     `json:"hook,omitempty"`
		Priority *int       `json:"priority,omitempty"`
		Policy   string     `json:"policy,omitempty"`
		Rules    []jsonRule `json:"rules"`
	}
	jsonRule struct {
		Text    string       `json:"text"`
		Comment string       `json:"comment,omitempty"`
		Matches []jsonMatch  `json:"matches"`
		Actions []jsonAction `json:"actions"`
		Counter *jsonCounter `json:"counter,omitempty"`
	}
	jsonCounter struct {
		Packets uint64 `json:"packets"`
		Bytes   uint64 `json:"bytes"`
	}
	jsonMatch struct {
		Match  string   `json:"match"`
		Of     string   `json:"of,omitempty"`
		Not    bool     `json:"not,omitempty"`
		Values []string `json:"values,omitempty"`
		Set    string   `json:"set,omitempty"`
		Mask   string   `json:"mask,omitempty"`
		Text   string   `json:"text"`
	}
	jsonAction struct {
		Action string `json:"action"`
		Port   uint16 `json:"port,omitempty"`
		Zone   uint16 `json:"zone,omitempty"`
		Helper string `json:"helper,omitempty"`
		Chain  string `json:"chain,omitempty"`
		Value  string `json:"value,omitempty"`
		Mask   string `json:"mask,omitempty"`
		Text   string `json:"text"`
	}
	jsonRouting struct {
		Policies          []jsonPolicy `json:"policies"`
		LoopbackAddresses []netip.Addr `json:"loopbackAddresses"`
	}
	jsonPolicy struct {
		Family   string `json:"family"`
		Mark     string `json:"mark"`
		Mask     string `json:"mask,omitempty"`
		Table    uint32 `json:"table"`
		Priority int    `json:"priority"`
	}
)

func (rulesetDocument) kind() string { return "Ruleset" }

// jsonRulesetOf returns the JSON form of a ruleset that is a field of another object.
func jsonRulesetOf(rs rules.Ruleset) jsonRuleset {
	return jsonRuleset{jsonVersion, rulesetDocumentOf(rs)}
}

// rulesetDocumentOf returns the object that is printed for a ruleset alone.
func rulesetDocumentOf(rs rules.Ruleset) rulesetDocument {
	return rulesetDocument{
		Tables: convertEach(rs.Tables, jsonTableOf),
		Routing: jsonRouting{
			Policies: convertEach(rs.Routing.Policies, func(p *rules.PolicyRoute) jsonPolicy {
				policy := jsonPolicy{
					Family: p.Family.String(), Mark: hex(p.Mark), Table: p.Table,
					Priority: p.Priority,
				}
				if p.Mask != 0 {
					policy.Mask = hex(p.Mask)
				}
				return policy
			}),
			LoopbackAddresses: append([]netip.Addr{}, rs.Routing.LoopbackAddrs...),
		},
	}
}

// jsonTableOf returns the JSON form of a table.
func jsonTableOf(t *rules.Table) jsonTable {
	return jsonTable{
		Family: t.Family.String(),
		Name:   t.Name,
		Sets: convertEach(t.Sets(), func(m *rules.MatchAddr) jsonSet {
			return jsonSet{m.Set, m.Family().String(), addressTexts(*m)}
		}),
		Chains: convertEach(t.Chains, jsonChainOf),
	}
}

// jsonChainOf returns the JSON form of a chain.
func jsonChainOf(c *rules.Chain) jsonChain {
	chain := jsonChain{Name: c.Name, Rules: convertEach(c.Rules, jsonRuleOf)}
	if b := c.Base; b != nil {
		chain.Type, chain.Hook, chain.Priority, chain.Policy = b.Type.String(), b.Hook.String(),
			&b.Priority, rules.Accept.String()
		if b.Drop {
			chain.Policy = rules.Drop.String()
		}
	}
	return chain
}

// jsonRuleOf returns the JSON form of a rule without the value of its counter.
func jsonRuleOf(r *rules.Rule) jsonRule {
	return jsonRule{
		Text:    r.String(),
		Comment: r.Comment,
		Matches: convertEach(r.Matches, func(m *rules.Match) jsonMatch { return jsonMatchOf(*m) }),
		Actions: convertEach(r.Actions, func(a *rules.Action) jsonAction {
			return jsonActionOf(*a)
		}),
	}
}

// convertEach converts each element. It never returns nil, so that JSON contains an empty array.
func convertEach[T, U any](from []T, convert func(*T) U) []U {
	to := make([]U, len(from))
	for i := range from {
		to[i] = convert(&from[i])
	}
	return to
}
