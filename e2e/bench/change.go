package bench

import (
	"github.com/sluice-mesh/sluice/e2e/bench/report"
	"github.com/sluice-mesh/sluice/nft"
	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/rules"
)

// changeRows measure the change of one prefix among many on a pod under traffic. Tasks that take
// seconds are in a separate row with fewer rounds.
func changeRows(t Tools) []Row {
	before := Sidecar{IPv4: 1000}
	after := before
	after.Other = true
	row := func(id, name string, share float64, others ...programmer) Row {
		r := Row{
			ID: id, Topic: "Running pod", Name: name, Share: share, Plotted: report.Wall,
			Candidates: []Candidate{
				changeInProcess(coldName, false, before, after),
				changeInProcess(readName, true, before, after),
				t.changing(rulesApply, rulesApply, before, after),
			},
		}
		for _, p := range others {
			r.Candidates = append(r.Candidates, t.changing(p, p.reconciling(), before, after))
		}
		return r
	}
	const name = "one of 1000 excluded prefixes changes, under traffic"
	first := row("change", name, 2, istioNative)
	first.Note = "Meanwhile an application in the pod sends 5,000 datagrams per second over lo to another one, which answers each; an " +
		"unanswered datagram counts as lost. The time in process ends when the kernel has committed the transaction; the socket " +
		"is closed later, in the background. Sluice first reads and compares all rules and prefixes, and writes only the changed " +
		"prefix. \"" + readName + "\" is a repair by the agent, which has read the rules before; the kernel rejects the " +
		"transaction if they have changed since then, and the agent reads them again."
	first.Goals = []report.Goal{
		{Of: readName, Quantity: report.Wall, Limit: 1e-3},
		{Of: coldName, Quantity: report.Wall, Limit: 1e-3},
		{Of: readName, Quantity: report.Lost, Zero: true},
		{Of: coldName, Quantity: report.Lost, Zero: true},
		{Of: rulesApply.name, Quantity: report.Lost, Zero: true},
	}
	return []Row{
		first, row("change-iptables", name+", beside iptables", 0.2, istioLegacy, istioNFT),
	}
}

// changing returns a candidate that changes the rules with a programmer's commands, in a pod that
// another programmer prepared.
func (t Tools) changing(first, second programmer, before, after Sidecar) Candidate {
	return Candidate{Name: second.name, Kind: second.kind, Prepare: func() (Task, error) {
		ns, err := NewPod()
		if err != nil {
			return Task{}, err
		}
		if err = first.run(t, ns, before); err == nil {
			var commands []*Command
			if commands, err = second.commands(t, ns, after); err == nil {
				task := underTraffic(ns, inTurn(commands))
				task.Undo = func() { _ = ns.Close() }
				return task, nil
			}
		}
		_ = ns.Close()
		return Task{}, err
	}}
}

// changeInProcess returns a candidate that has compiled the ruleset, like a long-running process.
// If reads is true, it has also read the pod's rules.
func changeInProcess(name string, reads bool, before, after Sidecar) Candidate {
	var old, want rules.Ruleset
	return Candidate{
		Name: name, Kind: report.Sluice,
		Open: func() (end func(), err error) {
			if old, err = before.Compile(); err == nil {
				want, err = after.Compile()
			}
			return func() { old, want = rules.Ruleset{}, rules.Ruleset{} }, err
		},
		Prepare: func() (Task, error) {
			var pod *netns.NS
			var last nft.Snapshot
			task, err := inPod(func(ns *netns.NS) error {
				pod = ns
				err := created(nft.Apply(ns, old))
				if err == nil && reads {
					last, err = nft.ReadSince(ns, 0, old.Routing)
				}
				return err
			}, func(ns *netns.NS) error {
				p, err := nft.Prepare(want)
				if err != nil {
					return err
				}
				result, err := p.Apply(ns, nft.ApplyOptions{Since: last})
				return became(nft.Updated, result, err)
			})
			if err != nil {
				return Task{}, err
			}
			return underTraffic(pod, task), nil
		},
	}
}

// underTraffic runs the task while datagrams are sent in the pod.
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
	check := task.Check
	task.Check = func() error {
		if check != nil {
			if err := check(); err != nil {
				return err
			}
		}
		return redirects(ns, true)
	}
	return task
}
