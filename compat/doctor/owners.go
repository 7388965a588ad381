package doctor

import (
	"fmt"
	"slices"
	"strings"

	"github.com/sluice-mesh/sluice/nft"
	"github.com/sluice-mesh/sluice/nft/istio"
	"github.com/sluice-mesh/sluice/rules"
)

// foreign returns all tables except Sluice's, in hook order.
func (j *judge) foreign() []rules.Table {
	return slices.DeleteFunc(slices.Clone(j.Tables), func(t rules.Table) bool {
		return t.Family == rules.Inet && t.Name == rules.TableName
	})
}

// owners reports the foreign rules at the hooks of capture, and their order.
func (j *judge) owners() {
	if j.TablesErr == nil || nft.IsNotSupported(j.TablesErr) {
		j.installed()
	}
	for _, t := range j.foreign() {
		for i := range t.Chains {
			c := &t.Chains[i]
			if c.Base == nil || c.Base.Hook != rules.Prerouting && c.Base.Hook != rules.Output ||
				len(c.Rules) == 0 {
				continue
			}
			if c.Base.Type == rules.NAT {
				j.natChain(&t, c)
			} else if c.Base.Priority < 0 {
				j.mangleChain(&t, c)
			}
		}
	}
}

// natChain reports a foreign NAT chain.
func (j *judge) natChain(t *rules.Table, c *rules.Chain) {
	verdict, first := j.order(t, c, "rule of NAT", j.natPriority())
	if !first {
		j.add("rules", Note,
			verdict+": they are not evaluated for connections that Sluice's rules redirect", "")
		return
	}
	j.add("rules", Warning,
		verdict+": Sluice's rules are not evaluated for connections that they translate",
		j.orderAdvice())
}

// mangleChain reports a foreign chain at the positions of iptables' raw and mangle tables.
func (j *judge) mangleChain(t *rules.Table, c *rules.Chain) {
	isRaw := c.Base.Priority < rules.ConntrackPriority
	ours, ok := j.priority(func(b *rules.Base) bool {
		return b.Hook == c.Base.Hook && b.Type != rules.NAT &&
			(b.Priority < rules.ConntrackPriority) == isRaw
	})
	if !ok {
		j.add("rules", Note, place(t, c, "rule")+", where Sluice has none", "")
		return
	}
	verdict, first := j.order(t, c, "rule", ours)
	if isRaw && first && j.redirect.DNS.Capture && slices.ContainsFunc(c.Rules, setsZone) {
		j.add("rules", Warning,
			verdict+" and choose conntrack zones: the first choice counts, and answers to captured DNS queries may be lost",
			j.orderAdvice())
		return
	}
	j.add("rules", Note, verdict, "")
}

func setsZone(r rules.Rule) bool {
	return slices.ContainsFunc(r.Actions, func(a rules.Action) bool {
		_, ok := a.(rules.SetZone)
		return ok
	})
}

// order describes a chain, and whether it runs before Sluice's chain with the priority.
func (j *judge) order(
	t *rules.Table, c *rules.Chain, noun string, ours int,
) (verdict string, first bool) {
	first = j.runsFirst(t, c, ours)
	when := "after"
	if first {
		when = "before"
	}
	return fmt.Sprintf("%s, which run %s Sluice's (%d)", place(t, c, noun), when, ours), first
}

// place describes a chain and its position.
func place(t *rules.Table, c *rules.Chain, noun string) string {
	return fmt.Sprintf("table %s %s%s has %s at %s (chain %s, priority %d)", t.Family, t.Name,
		ownerOf(t), countText(len(c.Rules), noun),
		c.Base.Hook, c.Name, c.Base.Priority)
}

// runsFirst reports whether a chain runs before Sluice's chain with the priority at its hook.
func (j *judge) runsFirst(t *rules.Table, c *rules.Chain, ours int) bool {
	switch {
	case c.Base.Priority != ours:
		return c.Base.Priority < ours
	case j.ours() == nil:
		return false // Sluice's chain will be registered last
	}
	at := func(family rules.Family, name string) int {
		return slices.IndexFunc(j.Tables, func(o rules.Table) bool {
			return o.Family == family && o.Name == name
		})
	}
	return at(t.Family, t.Name) < at(rules.Inet, rules.TableName)
}

// natPriority returns the priority of Sluice's NAT chains.
func (j *judge) natPriority() int {
	if priority, ok := j.priority(func(b *rules.Base) bool { return b.Type == rules.NAT }); ok {
		return priority
	}
	return rules.NATPriority
}

// priority returns the priority of Sluice's first base chain that satisfies is. It uses the
// installed chains, or the compiled ones if none are installed.
func (j *judge) priority(is func(*rules.Base) bool) (priority int, ok bool) {
	tables := j.compiled.Tables
	if t := j.ours(); t != nil {
		tables = []rules.Table{*t}
	}
	for _, t := range tables {
		for _, c := range t.Chains {
			if c.Base != nil && is(c.Base) {
				return c.Base.Priority, true
			}
		}
	}
	return 0, false
}

// orderAdvice returns the remedy for foreign chains that run before Sluice's.
func (j *judge) orderAdvice() string {
	if slices.Contains(j.redirect.Without, rules.NATFirst) {
		return "leave the deviation nat-first on (see rules help deviations), or give that chain a higher priority"
	}
	return "give that chain a higher priority, or make sure that it leaves the mesh's connections alone"
}

// istio reports rules of Istio's programs in nf_tables.
func (j *judge) istio() {
	for i := range j.Tables {
		t := &j.Tables[i]
		if program := istioProgram(t); program != "" {
			j.istioRules(fmt.Sprintf("table %s %s has rules of %s", t.Family, t.Name, program),
				marks(t))
		}
	}
}

// removeIstio is the remedy for rules of Istio's programs.
const removeIstio = "rules cleanup --istio removes them"

// istioRules reports rules of Istio's programs. marking means that they save marks to connections,
// which conflicts with TPROXY.
func (j *judge) istioRules(verdict string, marking bool) {
	switch {
	case !j.tproxy():
		verdict += ": two programs capture here"
	case marking:
		verdict += fmt.Sprintf(" that set TPROXY's mark %#x on connections: replies to inbound connections are routed to lo and lost", j.redirect.TProxyMark)
	default:
		verdict += ": two programs capture, and rules apply refuses TPROXY with them"
	}
	j.add("rules", j.istioSeverity(), verdict, removeIstio)
}

// istioSeverity returns the severity of rules of Istio's programs.
func (j *judge) istioSeverity() Severity {
	if j.tproxy() {
		return Problem
	}
	return Warning
}

// istioProgram returns the program of Istio that created rules of the table, or "".
func istioProgram(t *rules.Table) string {
	switch {
	case isIstioNFT(t):
		return "istio-nftables"
	case !istio.Find(t).IsZero():
		return "istio-iptables"
	}
	return ""
}

// marks reports whether a rule of the table copies marks from packets to connections.
func marks(t *rules.Table) bool {
	return slices.ContainsFunc(t.Chains, func(c rules.Chain) bool {
		return slices.ContainsFunc(c.Rules, func(r rules.Rule) bool {
			return slices.Contains(r.Actions, rules.Action(rules.SaveMark{}))
		})
	})
}

func isIstioNFT(t *rules.Table) bool {
	return t.Family == rules.Inet && strings.HasPrefix(t.Name, "istio-proxy-")
}

// ownerOf guesses the owner of a table from its name and the names of its chains.
func ownerOf(t *rules.Table) string {
	if isIstioNFT(t) {
		return " (of istio-nftables)"
	}
	for _, c := range t.Chains {
		for _, known := range []struct{ prefix, owner string }{
			{istio.ChainPrefix, "istio-iptables"},
			{"KUBE-", "Kubernetes"},
			{"DOCKER", "Docker"},
			{"cali-", "Calico"},
			{"CILIUM_", "Cilium"},
			{"CNI-", "a CNI plugin"},
		} {
			if strings.HasPrefix(c.Name, known.prefix) {
				return " (of " + known.owner + ")"
			}
		}
	}
	return ""
}

func countRules(t *rules.Table) int {
	n := 0
	for _, c := range t.Chains {
		n += len(c.Rules)
	}
	return n
}

// countText returns a count with a noun that begins with "rule", in the plural if n is not 1.
func countText(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %s", n, strings.Replace(noun, "rule", "rules", 1))
}
