package bench

import (
	"fmt"
	"strings"

	"github.com/sluice-mesh/sluice/e2e/bench/report"
	"github.com/sluice-mesh/sluice/nft/netns"
)

// processRows measure processes that program a new pod.
func processRows(t Tools) []Row {
	const topic = "New pod, separate process"
	goals := []report.Goal{
		{Of: rulesApply.name, Quantity: report.Wall, Than: []string{initNative.name}, Factor: 0.1},
		{Of: rulesApply.name, Quantity: report.Wall, Than: []string{istioNative.name}, Factor: 0.1},
		{Of: rulesApply.name, Quantity: report.Wall, Than: []string{nftName}, Factor: 1},
		{Of: rulesApply.name, Quantity: report.Executed, Zero: true},
	}
	all := []programmer{
		rulesApply, rulesLegacy, initNative, initAuto, istioNative, istioLegacy, istioNFT,
		istioAuto,
	}
	some := []programmer{rulesApply, rulesLegacy, initNative, istioNative, istioLegacy}
	first := t.processRow("process", topic, "no excluded prefixes", Sidecar{}, 1, goals, all)
	first.Note = fmt.Sprintf("FLAGS are `%s`. The commands are `rules apply FLAGS`, with `--backend legacy` for iptables-legacy; `istio-iptables "+
		"FLAGS`, with `--native-nftables` for istio-nftables, and with `--force-iptables-binary legacy` or `nft` for the "+
		"variants; `pilot-agent istio-iptables FLAGS`, which the istio-init container executes; `nft -f -` with the ruleset of "+
		"Sluice as `nft -nn list ruleset` prints it; `iptables-legacy-restore` and then `ip6tables-legacy-restore` with the "+
		"output of `-save` after istio-iptables. Excluded prefixes are the value of `-x`.",
		quoted(Sidecar{}.Flags()))
	return []Row{
		first,
		t.processRow("process-1000", topic, excluded(1000), Sidecar{IPv4: 1000, IPv6: 1000}, 0.5,
			goals, all),
		t.processRow("process-10000", topic, "10000 excluded IPv4 prefixes",
			Sidecar{IPv4: 10_000}, 0.2, goals, some),
	}
}

// quoted returns arguments in shell syntax.
func quoted(args []string) string {
	words := make([]string, len(args))
	for i, a := range args {
		words[i] = a
		if a == "" || a == "*" {
			words[i] = "'" + a + "'"
		}
	}
	return strings.Join(words, " ")
}

func (t Tools) processRow(
	id, topic, name string, s Sidecar, share float64, goals []report.Goal, all []programmer,
) Row {
	row := Row{
		ID: id, Topic: topic, Name: name, Share: share, Goals: goals, Plotted: report.Wall,
		Candidates: []Candidate{t.empty()},
	}
	for _, p := range all {
		row.Candidates = append(row.Candidates, t.fresh(p, s))
	}
	row.Candidates = append(row.Candidates, t.nft(s), t.restore(s))
	return row
}

// empty returns a process that does nothing.
func (t Tools) empty() Candidate {
	return Candidate{Name: emptyName, Kind: report.Floor, Prepare: func() (Task, error) {
		c, err := t.Empty()
		if err != nil {
			return Task{}, err
		}
		return c.Task(), nil
	}}
}

// fresh returns a candidate that programs a new pod.
func (t Tools) fresh(p programmer, s Sidecar) Candidate {
	return Candidate{Name: p.name, Kind: p.kind, Prepare: func() (Task, error) {
		return t.commandsInPod(p, s, s, nil)
	}}
}

// commandsInPod returns the task of executing p's commands for sidecar s in a new pod. If first is
// not nil, it programs the pod for the sidecar before.
func (t Tools) commandsInPod(p programmer, before, s Sidecar, first *programmer) (Task, error) {
	ns, err := NewPod()
	if err != nil {
		return Task{}, err
	}
	if first != nil {
		err = first.run(t, ns, before)
	}
	commands, prepareErr := p.commands(t, ns, s)
	if err == nil {
		err = prepareErr
	}
	if err != nil {
		_ = ns.Close()
		return Task{}, err
	}
	task := inTurn(commands)
	task.Check = func() error { return redirects(ns, true) }
	task.Undo = func() { _ = ns.Close() }
	return task, nil
}

// nft returns the nft command with Sluice's ruleset as nft prints it.
func (t Tools) nft(s Sidecar) Candidate {
	var text []byte
	return t.loading(nftName, func() error {
		return t.inExample(rulesApply, s, func(ns *netns.NS) (err error) {
			text, err = t.Output(ns, "nft", "-nn", "list", "ruleset")
			return err
		})
	}, func(ns *netns.NS) ([]*Command, error) {
		c, err := t.Command(ns, "nft", text, "-f", "-")
		return []*Command{c}, err
	})
}

// restore returns iptables-legacy-restore and ip6tables-legacy-restore with the rules of
// istio-iptables.
func (t Tools) restore(s Sidecar) Candidate {
	programs := []string{"iptables-legacy", "ip6tables-legacy"}
	texts := make([][]byte, len(programs))
	return t.loading(legacyName, func() error {
		return t.inExample(istioLegacy, s, func(ns *netns.NS) error {
			for i, p := range programs {
				var err error
				if texts[i], err = t.Output(ns, p+"-save"); err != nil {
					return err
				}
			}
			return nil
		})
	}, func(ns *netns.NS) ([]*Command, error) {
		var commands []*Command
		for i, p := range programs {
			c, err := t.Command(ns, p+"-restore", texts[i])
			if err != nil {
				return nil, err
			}
			commands = append(commands, c)
		}
		return commands, nil
	})
}

// loading returns a candidate whose commands load prepared files.
func (t Tools) loading(
	name string, write func() error, commands func(*netns.NS) ([]*Command, error),
) Candidate {
	p := programmer{name: name, commands: func(
		_ Tools, ns *netns.NS, _ Sidecar,
	) ([]*Command, error) {
		return commands(ns)
	}}
	c := t.fresh(p, Sidecar{})
	c.Open = func() (func(), error) { return func() {}, write() }
	return c
}

// inExample calls do with a pod that a programmer programmed.
func (t Tools) inExample(p programmer, s Sidecar, do func(*netns.NS) error) error {
	ns, err := NewPod()
	if err != nil {
		return err
	}
	defer func() { _ = ns.Close() }()
	if err := p.run(t, ns, s); err != nil {
		return err
	}
	return do(ns)
}
