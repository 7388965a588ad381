package bench

import (
	"github.com/sluice-mesh/sluice/e2e/bench/report"
	"github.com/sluice-mesh/sluice/nft"
	"github.com/sluice-mesh/sluice/nft/netns"
)

// changeRows measure the change of one prefix among many on a pod in service.
func changeRows(t Tools) []Row {
	before := Sidecar{IPv4: 1000}
	after := before
	after.Other = true
	row := Row{
		ID: "change", Topic: "A live pod", Name: "one excluded prefix among 1000 changes, under traffic", Share: 0.2, Plotted: report.Wall,
		Note: "Meanwhile an application of the pod sends 5,000 datagrams per second to another over lo, which answers each; what is not " +
			"answered is lost. The time in process is until the kernel has committed: the socket is closed afterwards, in the background. " +
			"Known is a process that has seen the rules before, and the number that the kernel gave to that state: nothing is read then, and " +
			"the kernel refuses if the number is another.",
		Goals: []report.Goal{
			{Of: knownName, Quantity: report.Wall, Limit: 1e-3},
			{Of: knownName, Quantity: report.Lost, Zero: true},
			{Of: coldName, Quantity: report.Lost, Zero: true},
			{Of: rulesApply.name, Quantity: report.Lost, Zero: true},
		},
		Contestants: []Contestant{
			changeInProcess(knownName, before, after, func(ns *netns.NS, old, want *nft.Prepared, generation uint32) (nft.Result, error) {
				return old.Change(ns, want, generation)
			}),
			changeInProcess(coldName, before, after, func(ns *netns.NS, _, want *nft.Prepared, _ uint32) (nft.Result, error) {
				return want.Apply(ns)
			}),
		},
	}
	for _, p := range []struct{ first, again programmer }{
		{rulesApply, rulesApply},
		{istioNative, istioNative.reconciling()},
		{istioLegacy, istioLegacy.reconciling()},
		{istioNFT, istioNFT.reconciling()},
	} {
		row.Contestants = append(row.Contestants, Contestant{Name: p.again.name, Kind: p.again.kind, Prepare: func() (Task, error) {
			ns, err := NewPod()
			if err != nil {
				return Task{}, err
			}
			if err = p.first.run(t, ns, before); err == nil {
				var commands []*Command
				if commands, err = p.again.commands(t, ns, after); err == nil {
					return underTraffic(ns, inTurn(commands)), nil
				}
			}
			_ = ns.Close()
			return Task{}, err
		}})
	}
	return []Row{row}
}

// changeInProcess has the rulesets ready, as a process that stays has them.
func changeInProcess(
	name string, before, after Sidecar, change func(ns *netns.NS, old, want *nft.Prepared, generation uint32) (nft.Result, error),
) Contestant {
	var old, want *nft.Prepared
	return Contestant{
		Name: name, Kind: report.Ours,
		Open: func() (end func(), err error) {
			if old, err = before.prepare(); err == nil {
				want, err = after.prepare()
			}
			return func() { old, want = nil, nil }, err
		},
		Prepare: func() (Task, error) {
			var pod *netns.NS
			var seen nft.Result
			task, err := inPod(func(ns *netns.NS) (err error) {
				if err := created(old.Apply(ns)); err != nil {
					return err
				}
				pod = ns
				seen, err = old.Apply(ns)
				return became(nft.Unchanged, seen, err)
			}, func(ns *netns.NS) error {
				result, err := change(ns, old, want, seen.Generation)
				return became(nft.Updated, result, err)
			})
			if err != nil {
				return Task{}, err
			}
			return underTraffic(pod, task), nil
		},
	}
}

// underTraffic is the task while datagrams go to and fro in the pod.
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
