package bench

import (
	"fmt"

	"github.com/sluice-mesh/sluice/e2e/bench/report"
	"github.com/sluice-mesh/sluice/nft"
	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/rules"
)

// reapplyRows returns rows in which the pod already has the rules that are applied.
func reapplyRows(t Tools) []Row {
	const topic = "Rules applied again, unchanged"
	row := Row{
		ID: "again", Topic: topic, Name: "no excluded prefixes", Plotted: report.Wall,
		Goals: []report.Goal{
			{Entry: coldName, Quantity: report.Wall, Factor: 1.0 / 50},
			{Entry: rulesApply.name, Quantity: report.Wall, Others: []string{emptyName}, Factor: 2},
		},
		Candidates: []Candidate{t.emptyCandidate(), reapplyInProcess(Sidecar{})},
	}
	for _, p := range []installer{rulesApply, rulesLegacy, istioNative, istioLegacy, istioNFT} {
		row.Candidates = append(row.Candidates, Candidate{
			Name: p.name, Kind: p.kind,
			Prepare: func() (Task, error) {
				return t.commandsInPod(p, Sidecar{}, func(ns *netns.NS) error {
					return p.run(t, ns, Sidecar{})
				})
			},
		})
	}
	rows := []Row{row}
	for _, n := range []int{1000, 10_000} {
		s := Sidecar{IPv4Prefixes: n, IPv6Prefixes: n}
		first := coldWriter.candidate(s, timedPodTask)
		first.Name = "Sluice in process, first application"
		rows = append(rows, Row{
			ID: fmt.Sprint("again-", n), Topic: topic, Name: excludedPrefixes(n), RoundsFactor: 1,
			Candidates: []Candidate{reapplyInProcess(s), first},
		})
	}
	return rows
}

// reapplyInProcess returns a candidate that applies unchanged rules in this process.
func reapplyInProcess(s Sidecar) Candidate {
	var rs rules.Ruleset
	return Candidate{
		Name: coldName, Kind: report.Sluice,
		Open: func() (end func(), err error) {
			rs, err = s.Compile()
			return func() {}, err
		},
		Prepare: func() (Task, error) {
			install := func(ns *netns.NS) error { return requireCreated(nft.Apply(ns, rs)) }
			return podTask(install, func(ns *netns.NS) (Task, error) {
				return timed(func() error {
					result, err := nft.Apply(ns, rs)
					return checkOutcome(nft.Unchanged, result, err)
				}), nil
			})
		},
	}
}
