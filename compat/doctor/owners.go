package doctor

import (
	"fmt"
	"slices"
	"strings"

	"github.com/sluice-mesh/sluice/compat"
	"github.com/sluice-mesh/sluice/nft"
	"github.com/sluice-mesh/sluice/nft/istio"
	"github.com/sluice-mesh/sluice/rules"
)

// foreignTables returns all tables of nf_tables except Sluice's table, in the order of Tables.
func (d *diagnosis) foreignTables() []rules.Table {
	return slices.DeleteFunc(slices.Clone(d.Tables), func(t rules.Table) bool {
		return compat.IsSluiceTable(&t)
	})
}

// checkNFTables reports the backend that holds Sluice's rules. It also reports the foreign chains
// of nf_tables at prerouting and output that contain rules: NAT chains, and other chains with a
// negative priority. Foreign chains at input are reported if they can drop packets or set TPROXY's
// mark on connections.
func (d *diagnosis) checkNFTables() {
	if d.TablesErr == nil || nft.IsNotSupported(d.TablesErr) {
		d.checkInstalled()
	}
	for _, t := range d.foreignTables() {
		for i := range t.Chains {
			c := &t.Chains[i]
			switch {
			case c.Base == nil:
			case c.Base.Hook == rules.Input:
				d.checkInputChain(&t, c)
			case c.Base.Hook != rules.Prerouting && c.Base.Hook != rules.Output || len(c.Rules) == 0:
			case c.Base.Type == rules.NAT:
				d.checkNATChain(&t, c)
			case c.Base.Priority < 0:
				d.checkEarlyChain(&t, c)
			}
		}
	}
}

// checkNATChain reports a foreign NAT chain.
func (d *diagnosis) checkNATChain(t *rules.Table, c *rules.Chain) {
	summary, first := d.describeOrder(t, c, "NAT rule", d.natPriority())
	if !first {
		d.add("rules", Note,
			summary+": they are not evaluated for connections that Sluice's rules redirect", "")
		return
	}
	d.add("rules", Warning,
		summary+": Sluice's rules are not evaluated for connections that they translate",
		d.natOrderAdvice())
}

// checkEarlyChain reports a foreign chain with a negative priority that is not a NAT chain. Such a
// chain runs before conntrack, like iptables' raw table, or after conntrack, like mangle.
func (d *diagnosis) checkEarlyChain(t *rules.Table, c *rules.Chain) {
	isRaw := c.Base.Priority < rules.ConntrackPriority
	sluicePriority, ok := d.priorityOf(func(b *rules.Base) bool {
		return b.Hook == c.Base.Hook && b.Type != rules.NAT &&
			(b.Priority < rules.ConntrackPriority) == isRaw
	})
	if !ok {
		d.add("rules", Note, rulePosition(t, c, "rule")+", where Sluice has no rules", "")
		return
	}
	summary, first := d.describeOrder(t, c, "rule", sluicePriority)
	if isRaw && first && d.redirect.DNS.Capture && assignsZone(t.ReachableFrom(c)) {
		d.add("rules", Warning,
			summary+". They assign conntrack zones: the first assignment takes effect, and answers"+
				" to captured DNS queries may be lost",
			laterAdvice+", or make sure that it assigns no zones to the mesh's DNS packets")
		return
	}
	d.add("rules", Note, summary, "")
}

// checkInputChain reports a foreign chain at input that can drop packets, changes the marks of
// connections whose answers depend on them, or translates sources. checkConflicts does not evaluate
// this hook, which comes after the redirection.
func (d *diagnosis) checkInputChain(t *rules.Table, c *rules.Chain) {
	reachable := t.ReachableFrom(c)
	if mark := d.replyMark(); mark != 0 && setsConnectionMark(reachable, mark) {
		d.add("rules", Problem,
			fmt.Sprintf("%s: they set the mark %#x on connections, whose answers are routed to lo"+
				" and lost", rulePosition(t, c, "rule"), mark),
			"remove the rule that sets the mark, or choose another mark")
	} else if mark != 0 && anyAction(reachable, changesConnectionMark) {
		d.add("rules", Warning,
			fmt.Sprintf("%s: they change the marks of connections: if they change the mark %#x of the proxy's"+
				" connections to the application, the answers are lost", rulePosition(t, c, "rule"), mark),
			"run rules validate to test it with connections")
	}
	if anyAction(reachable, hasType[rules.SNATTo]) {
		d.add("rules", Warning,
			rulePosition(t, c, "NAT rule")+": they translate the source of connections, which the proxy then takes"+
				" for the address of the client", "remove the rule if it translates captured connections")
	}
	if !c.Base.Drop && !canDrop(reachable) {
		return
	}
	policy := ""
	if c.Base.Drop {
		policy = ", the policy drop,"
	}
	d.add("rules", Warning,
		rulePosition(t, c, "rule")+policy+" and can drop packets; the effect on captured connections is"+
			" unknown, because doctor does not evaluate rules at input",
		"run rules validate to test it with connections")
}

// setsConnectionMark reports whether a rule of the chains sets the mark of connections to mark.
func setsConnectionMark(chains []*rules.Chain, mark uint32) bool {
	return anyAction(chains, func(a rules.Action) bool {
		return a == rules.Action(rules.MixMark{Conntrack: true, Xor: mark})
	})
}

// changesConnectionMark reports whether the action changes the mark of a connection.
func changesConnectionMark(a rules.Action) bool {
	m, ok := a.(rules.MixMark)
	return ok && m.Conntrack
}

// canDrop reports whether a rule of the chains drops or rejects packets.
func canDrop(chains []*rules.Chain) bool {
	return anyAction(chains, func(a rules.Action) bool {
		_, isReject := a.(rules.Reject)
		return isReject || a == rules.Drop
	})
}

// assignsZone reports whether a rule of the chains assigns a conntrack zone.
func assignsZone(chains []*rules.Chain) bool { return anyAction(chains, isSetZone) }

func isSetZone(a rules.Action) bool { return hasType[rules.SetZone](a) }

// hasType reports whether the action has the type T.
func hasType[T rules.Action](a rules.Action) bool {
	_, ok := a.(T)
	return ok
}

func anyAction(chains []*rules.Chain, is func(rules.Action) bool) bool {
	return slices.ContainsFunc(chains, func(c *rules.Chain) bool {
		return c.HasAction(is)
	})
}

// describeOrder describes a chain and its order relative to Sluice's chain, whose priority is
// sluicePriority. first reports whether the chain runs before Sluice's chain.
func (d *diagnosis) describeOrder(
	t *rules.Table, c *rules.Chain, noun string, sluicePriority int,
) (summary string, first bool) {
	first = d.runsFirst(t, c, sluicePriority)
	when := "after"
	if first {
		when = "before"
	}
	return fmt.Sprintf("%s, %s Sluice's (priority %d)", rulePosition(t, c, noun), when,
		sluicePriority), first
}

// rulePosition describes a chain and its position.
func rulePosition(t *rules.Table, c *rules.Chain, noun string) string {
	table := fmt.Sprintf("table %s %s", t.Family, t.Name)
	if compat.IsLegacyTable(t) {
		table = legacyName(t.Family, t.Name)
	}
	return fmt.Sprintf("%s%s has %s at %s (chain %s, priority %d)", table, ownerOf(t),
		countText(len(c.Rules), noun), c.Base.Hook, c.Name, c.Base.Priority)
}

// runsFirst reports whether a chain runs before Sluice's chain at the same hook, whose priority is
// sluicePriority.
func (d *diagnosis) runsFirst(t *rules.Table, c *rules.Chain, sluicePriority int) bool {
	switch {
	case c.Base.Priority != sluicePriority:
		return c.Base.Priority < sluicePriority
	case d.sluiceTable() == nil:
		return false // Sluice's chain will be registered last, and will run first
	}
	index := func(family rules.Family, name string) int {
		return slices.IndexFunc(d.Tables, func(o rules.Table) bool {
			return o.Family == family && o.Name == name
		})
	}
	return index(t.Family, t.Name) < index(rules.Inet, rules.TableName)
}

// natPriority returns the priority of Sluice's NAT chains.
func (d *diagnosis) natPriority() int {
	if priority, ok := d.priorityOf(func(b *rules.Base) bool { return b.Type == rules.NAT }); ok {
		return priority
	}
	return rules.NATPriority
}

// priorityOf returns the priority of Sluice's first base chain that matches. It uses the installed
// chains, or the compiled chains if none are installed.
func (d *diagnosis) priorityOf(matches func(*rules.Base) bool) (priority int, ok bool) {
	tables := d.compiled.Tables
	if t := d.sluiceTable(); t != nil {
		tables = []rules.Table{*t}
	}
	for _, t := range tables {
		for _, c := range t.Chains {
			if c.Base != nil && matches(c.Base) {
				return c.Base.Priority, true
			}
		}
	}
	return 0, false
}

// laterAdvice is the remedy for a foreign chain that runs before Sluice's.
const laterAdvice = "give that chain a higher priority number, so that it runs later"

// natOrderAdvice returns the remedy for foreign NAT chains that run before Sluice's.
func (d *diagnosis) natOrderAdvice() string {
	if slices.Contains(d.redirect.Without, rules.NATFirst) {
		return "either turn on the deviation nat-first (see rules help deviations), or " +
			laterAdvice
	}
	return laterAdvice + ", or make sure that it does not translate the mesh's connections"
}

// checkIstio reports rules of Istio's programs in nf_tables.
func (d *diagnosis) checkIstio() {
	for i := range d.Tables {
		t := &d.Tables[i]
		if program := istioProgram(t); program != "" {
			d.addIstioFinding(fmt.Sprintf("table %s %s has rules of %s", t.Family, t.Name, program),
				compat.SavesMarks(t))
		}
	}
}

// removeIstio is the remedy for rules of Istio's programs.
const removeIstio = "run rules cleanup --istio to remove them"

// addIstioFinding reports rules of Istio's programs. summary is the beginning of the finding's
// summary. savesMarks reports whether the rules save marks to connections. Such rules conflict with
// TPROXY.
func (d *diagnosis) addIstioFinding(summary string, savesMarks bool) {
	switch {
	case !d.usesTProxy():
		summary += ": two programs capture here"
	case savesMarks:
		summary += fmt.Sprintf(" that set TPROXY's mark %#x on connections: replies to inbound"+
			" connections are routed to lo and lost", d.redirect.TProxyMark)
	default:
		summary += ": two programs capture here, and \"rules apply\" refuses TPROXY until these rules" +
			" are removed"
	}
	d.add("rules", d.istioSeverity(), summary, removeIstio)
}

// istioSeverity returns the severity of rules of Istio's programs.
func (d *diagnosis) istioSeverity() Severity {
	if d.usesTProxy() {
		return Problem
	}
	return Warning
}

// istioProgram returns the program of Istio that created rules of the table, or "".
func istioProgram(t *rules.Table) string {
	switch {
	case nft.IsIstioTable(t) && strings.HasPrefix(t.Name, "istio-ambient-"):
		return "istio-cni in ambient mode"
	case nft.IsIstioTable(t):
		return "istio-nftables"
	case !istio.Find(t).IsZero():
		return "istio-iptables"
	}
	return ""
}

// ownerOf guesses the owner of a table from its name and the names of its chains. It returns a text
// such as " (of Docker)", or "" if the names show no owner.
func ownerOf(t *rules.Table) string {
	if nft.IsIstioTable(t) {
		return " (of " + istioProgram(t) + ")"
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

// countText returns a count with a noun that contains the word "rule", in the plural if n is not 1.
func countText(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %s", n, strings.Replace(noun, "rule", "rules", 1))
}
