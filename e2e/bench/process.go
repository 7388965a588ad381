package bench

import (
	"fmt"
	"strings"

	"github.com/sluice-mesh/sluice/e2e/bench/report"
	"github.com/sluice-mesh/sluice/nft/netns"
)

// processRows returns rows in which separate processes write the rules of a new pod.
func processRows(t Tools) []Row {
	const topic = "New pod, separate process"
	wallGoal := func(other string, factor float64) report.Goal {
		return report.Goal{
			Entry: rulesApply.name, Quantity: report.Wall, Others: []string{other}, Factor: factor,
		}
	}
	goals := []report.Goal{
		wallGoal(initNative.name, 0.1), wallGoal(istioNative.name, 0.1), wallGoal(nftName, 1),
		{Entry: rulesApply.name, Quantity: report.Executed, Zero: true},
	}
	installers := []installer{
		rulesApply, rulesLegacy, initNative, initAuto, istioNative, istioLegacy, istioNFT,
		istioAuto,
	}
	// The last row has fewer installers, which shortens the run.
	fewerInstallers := []installer{
		rulesApply, rulesLegacy, initNative, istioNative, istioLegacy,
	}
	first := t.processRow("process", topic, "no excluded prefixes", Sidecar{}, 1, goals,
		installers)
	first.Note = fmt.Sprintf("FLAGS are `%s`; the value of `-x` is the excluded prefixes.\n\n"+
		"* rules apply: `rules apply FLAGS`, for iptables-legacy with `--backend legacy`\n"+
		"* istio-init: `pilot-agent istio-iptables FLAGS`, for nftables with `--native-nftables`\n"+
		"* istio-nftables: `istio-iptables FLAGS --native-nftables`\n"+
		"* istio-iptables: `istio-iptables FLAGS`, for legacy and iptables-nft with "+
		"`--force-iptables-binary`\n"+
		"* nft -f: reads the ruleset of Sluice, as `nft -nn list ruleset` prints it\n"+
		"* iptables-restore and ip6tables-restore: read the rules of istio-iptables, as "+
		"iptables-save and ip6tables-save print them",
		shellQuote(Sidecar{}.Flags()))
	return []Row{
		first,
		t.processRow("process-1000", topic, excludedPrefixes(1000),
			Sidecar{IPv4Prefixes: 1000, IPv6Prefixes: 1000}, 0.5, goals, installers),
		t.processRow("process-10000", topic, "10000 excluded IPv4 prefixes",
			Sidecar{IPv4Prefixes: 10_000}, 0.2, goals, fewerInstallers),
	}
}

// shellQuote returns arguments in shell syntax. It quotes only empty arguments and asterisks, which
// suffices for the sidecar's flags.
func shellQuote(args []string) string {
	words := make([]string, len(args))
	for i, a := range args {
		words[i] = a
		if a == "" || a == "*" {
			words[i] = "'" + a + "'"
		}
	}
	return strings.Join(words, " ")
}

// processRow returns the row in which the installers, nft and iptables-restore write the rules of a
// new pod.
func (t Tools) processRow(
	id, topic, name string, s Sidecar, roundsFactor float64, goals []report.Goal,
	installers []installer,
) Row {
	row := Row{
		ID: id, Topic: topic, Name: name, RoundsFactor: roundsFactor, Goals: goals,
		Plotted: report.Wall, Candidates: []Candidate{t.emptyCandidate()},
	}
	for _, p := range installers {
		row.Candidates = append(row.Candidates, t.newPodCandidate(p, s))
	}
	row.Candidates = append(row.Candidates, t.nftCandidate(s), t.restoreCandidate(s))
	return row
}

// emptyCandidate returns a candidate that executes an empty program.
func (t Tools) emptyCandidate() Candidate {
	return Candidate{Name: emptyName, Kind: report.Floor, Prepare: func() (Task, error) {
		c, err := t.Empty()
		if err != nil {
			return Task{}, err
		}
		return c.Task(), nil
	}}
}

// newPodCandidate returns a candidate that writes the rules of a new pod.
func (t Tools) newPodCandidate(p installer, s Sidecar) Candidate {
	return Candidate{Name: p.name, Kind: p.kind, Prepare: func() (Task, error) {
		return t.commandsInPod(p, s, nil)
	}}
}

// commandsInPod returns the task of executing the installer's commands for the sidecar in a new
// pod. prepare may be nil; it runs in the pod before the task.
func (t Tools) commandsInPod(
	p installer, s Sidecar, prepare func(*netns.NS) error,
) (Task, error) {
	return podTask(prepare, func(ns *netns.NS) (Task, error) {
		commands, err := p.commands(t, ns, s)
		return inSequence(commands), err
	})
}

// nftCandidate returns a candidate that loads Sluice's ruleset, as nft prints it, with the command
// nft.
func (t Tools) nftCandidate(s Sidecar) Candidate {
	var text []byte
	return t.loadCandidate(nftName, func() error {
		return t.withConfiguredPod(rulesApply, s, func(ns *netns.NS) (err error) {
			text, err = t.Output(ns, "nft", "-nn", "list", "ruleset")
			return err
		})
	}, func(ns *netns.NS) ([]*Command, error) {
		c, err := t.Command(ns, "nft", text, "-f", "-")
		return []*Command{c}, err
	})
}

// restoreCandidate returns a candidate that loads the rules of istio-iptables with
// iptables-legacy-restore and ip6tables-legacy-restore.
func (t Tools) restoreCandidate(s Sidecar) Candidate {
	programs := []string{"iptables-legacy", "ip6tables-legacy"}
	texts := make([][]byte, len(programs))
	return t.loadCandidate("iptables-restore and ip6tables-restore, legacy", func() error {
		return t.withConfiguredPod(istioLegacy, s, func(ns *netns.NS) error {
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

// loadCandidate returns a candidate whose commands load rules. saveRules obtains the text of these
// rules once, before the first round.
func (t Tools) loadCandidate(
	name string, saveRules func() error, commands func(*netns.NS) ([]*Command, error),
) Candidate {
	p := installer{name: name, commands: func(
		_ Tools, ns *netns.NS, _ Sidecar,
	) ([]*Command, error) {
		return commands(ns)
	}}
	c := t.newPodCandidate(p, Sidecar{})
	c.Open = func() (func(), error) { return func() {}, saveRules() }
	return c
}

// withConfiguredPod calls do with a new pod whose rules the installer has written.
func (t Tools) withConfiguredPod(p installer, s Sidecar, do func(*netns.NS) error) error {
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
