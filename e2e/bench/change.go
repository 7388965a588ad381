package bench

import (
	"github.com/sluice-mesh/sluice/e2e/bench/report"
	"github.com/sluice-mesh/sluice/nft"
	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/rules"
)

// changeRows returns rows that change one of many excluded prefixes of a pod under traffic.
// Candidates that take seconds are in a row of their own with fewer rounds.
func changeRows(t Tools) []Row {
	before := Sidecar{IPv4Prefixes: 1000}
	after := before
	after.ReplaceLastPrefix = true
	row := func(id, name string, roundsFactor float64, peers ...installer) Row {
		r := Row{
			ID: id, Topic: "Running pod", Name: name, RoundsFactor: roundsFactor,
			Plotted: report.Wall,
			Candidates: []Candidate{
				changeInProcess(coldName, false, before, after),
				changeInProcess(readName, true, before, after),
				t.changeCandidate(rulesApply, rulesApply, before, after),
			},
		}
		for _, p := range peers {
			r.Candidates = append(r.Candidates,
				t.changeCandidate(p, p.reconciling(), before, after))
		}
		return r
	}
	const name = "one of 1000 excluded prefixes changes, under traffic"
	fast := row("change", name, 2, istioNative)
	fast.Goals = []report.Goal{
		{Entry: readName, Quantity: report.Wall, Limit: 1e-3},
		{Entry: coldName, Quantity: report.Wall, Limit: 1e-3},
		{Entry: readName, Quantity: report.Lost, Zero: true},
		{Entry: coldName, Quantity: report.Lost, Zero: true},
		{Entry: rulesApply.name, Quantity: report.Lost, Zero: true},
	}
	return []Row{
		fast, row("change-iptables", name+", beside iptables", 0.2, istioLegacy, istioNFT),
	}
}

// changeCandidate returns a candidate that changes the rules of a pod. initial writes the rules of
// the sidecar before, without being measured. The commands of changer replace them with the rules
// of the sidecar after.
func (t Tools) changeCandidate(initial, changer installer, before, after Sidecar) Candidate {
	return Candidate{Name: changer.name, Kind: changer.kind, Prepare: func() (Task, error) {
		prepare := func(ns *netns.NS) error { return initial.run(t, ns, before) }
		return podTask(prepare, func(ns *netns.NS) (Task, error) {
			commands, err := changer.commands(t, ns, after)
			return underTraffic(ns, inSequence(commands)), err
		})
	}}
}

// changeInProcess returns a candidate that changes a pod's rules in this process. The rulesets are
// compiled before the measurement. If readsBefore is true, the pod's rules are also read before the
// measurement, as the agent does.
func changeInProcess(name string, readsBefore bool, before, after Sidecar) Candidate {
	var old, desired rules.Ruleset
	return Candidate{
		Name: name, Kind: report.Sluice,
		Open: func() (end func(), err error) {
			if old, err = before.Compile(); err == nil {
				desired, err = after.Compile()
			}
			return func() { old, desired = rules.Ruleset{}, rules.Ruleset{} }, err
		},
		Prepare: func() (Task, error) {
			var snapshot nft.Snapshot
			prepare := func(ns *netns.NS) error {
				err := requireCreated(nft.Apply(ns, old))
				if err == nil && readsBefore {
					snapshot, err = nft.ReadSince(ns, 0, old.Routing)
				}
				return err
			}
			return podTask(prepare, func(ns *netns.NS) (Task, error) {
				return underTraffic(ns, timed(func() error {
					p, err := nft.Prepare(desired)
					if err != nil {
						return err
					}
					result, err := p.Apply(ns, nft.ApplyOptions{Since: snapshot})
					return checkOutcome(nft.Updated, result, err)
				})), nil
			})
		},
	}
}

// underTraffic returns a task that sends datagrams in the pod while it performs the given task. Its
// cost is the cost of the given task, the number of lost datagrams and the longest time without a
// reply.
func underTraffic(ns *netns.NS, task Task) Task {
	do := task.Do
	task.Do = func() (Sample, error) {
		traffic, err := startTraffic(ns)
		if err != nil {
			return nil, err
		}
		s, err := do()
		lost, gap, stopErr := traffic.stop()
		if err == nil {
			err = stopErr
		}
		if err != nil {
			return nil, err
		}
		s[report.Lost], s[report.Gap] = float64(lost), gap.Seconds()
		return s, nil
	}
	return task
}
