package bench

import (
	"github.com/sluice-mesh/sluice/e2e/bench/report"
	"github.com/sluice-mesh/sluice/nft/netns"
)

// diffRows returns rows in which rules diff compares two rulesets.
func diffRows(t Tools) []Row {
	var rows []Row
	for _, c := range []struct {
		id, name string
		sidecar  Sidecar
		limit    float64 // goal in seconds; 0 for none
	}{
		{"diff", "default parameters, IPv4 pod", Sidecar{WithoutDNS: true, IPv4Only: true}, 5e-3},
		{"diff-dual", "dual-stack pod with DNS capture", Sidecar{}, 0},
		{
			"diff-1000", "dual-stack pod with DNS capture, " + excludedPrefixes(1000),
			Sidecar{IPv4Prefixes: 1000, IPv6Prefixes: 1000},
			200e-3,
		},
		{
			"diff-10000", "dual-stack pod with DNS capture, 10000 excluded IPv4 prefixes",
			Sidecar{IPv4Prefixes: 10_000},
			3,
		},
	} {
		const name = "rules diff"
		row := Row{
			ID: c.id, Topic: "rules diff", Name: c.name, Plotted: report.Wall,
			Candidates: []Candidate{t.diffCandidate(c.id, name, c.sidecar)},
		}
		if c.limit > 0 {
			row.Goals = []report.Goal{{Entry: name, Quantity: report.Wall, Limit: c.limit}}
		}
		rows = append(rows, row)
	}
	return rows
}

// diffCandidate returns a candidate that compares the sidecar's rules with istio-iptables' rules.
func (t Tools) diffCandidate(id, name string, s Sidecar) Candidate {
	var args []string
	return Candidate{
		Name: name, Kind: report.Sluice,
		Open: func() (func(), error) {
			args = append([]string{"diff"}, s.Flags()...)
			return func() {}, t.withConfiguredPod(istioLegacy, s, func(ns *netns.NS) error {
				families := []string{"iptables", "ip6tables"}
				if s.IPv4Only {
					families = families[:1]
				}
				for _, family := range families {
					text, err := t.Output(ns, family+"-legacy-save")
					if err != nil {
						return err
					}
					path, err := t.writeFile(id+"."+family+"-save", text)
					if err != nil {
						return err
					}
					args = append(args, "--"+family+"-save", path)
				}
				return nil
			})
		},
		Prepare: func() (Task, error) {
			// rules diff exits with 0 even if the rulesets differ by known deviations.
			c, err := t.Command(nil, Rules, nil, args...)
			if err != nil {
				return Task{}, err
			}
			return c.Task(), nil
		},
	}
}
