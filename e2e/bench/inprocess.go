package bench

import (
	"fmt"

	"github.com/sluice-mesh/sluice/e2e/bench/report"
	"github.com/sluice-mesh/sluice/nft"
	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/rules"
)

// Names of candidates that goals refer to.
const (
	rawName, emptyName, nftName = "the same netlink messages, prepared", "empty Go program", "nft -f"
	coldName, cachedName        = "Sluice in process", "Sluice in process, batch cached"
	readName                    = "Sluice in process, rules already read"
	legacyName                  = "iptables-restore and ip6tables-restore, legacy"
)

// inProcessRows measure the library, from parameters to committed rules.
func inProcessRows() []Row {
	const topic = "New pod, in process"
	var rows []Row
	for _, c := range []struct {
		id       string
		prefixes int
		share    float64
		cached   float64 // maximum ratio to the floor
	}{{"fresh", 0, 30, 1.15}, {"fresh-1000", 1000, 5, 1.2}, {"fresh-10000", 10_000, 1, 1.2}} {
		s := Sidecar{IPv4: c.prefixes, IPv6: c.prefixes}
		goals := []report.Goal{{
			Of: cachedName, Quantity: report.Wall, Than: []string{rawName}, Factor: c.cached,
		}}
		if c.prefixes == 0 {
			goals = append(goals, report.Goal{
				Of: coldName, Quantity: report.Wall, Than: []string{rawName}, Factor: 1.3,
			})
		}
		rows = append(rows, Row{
			ID: c.id, Topic: topic, Name: excluded(c.prefixes), Share: c.share, Goals: goals,
			Plotted:    report.Wall,
			Candidates: []Candidate{rawCandidate(s), coldCandidate(s), cachedCandidate(s)},
		})
	}
	rows[0].Note = "The parameters are those of an injected dual-stack pod with DNS capture. \"In process\" is the time from parameters to " +
		"committed rules. \"Batch cached\" omits compiling and encoding, as for many pods with the same parameters. Creating the " +
		"namespace is not included."
	return rows
}

func excluded(n int) string {
	if n == 0 {
		return "no excluded prefixes"
	}
	return fmt.Sprintf("%d excluded prefixes per family", n)
}

// inPod returns a task that runs do in a new pod, after prepare unless it is nil.
func inPod(prepare, do func(*netns.NS) error) (Task, error) {
	ns, err := NewPod()
	if err == nil && prepare != nil {
		if err = prepare(ns); err != nil {
			_ = ns.Close()
		}
	}
	if err != nil {
		return Task{}, err
	}
	return Task{
		Do:    timed(func() error { return do(ns) }),
		Check: func() error { return redirects(ns, true) },
		Undo:  func() { _ = ns.Close() },
	}, nil
}

func rawCandidate(s Sidecar) Candidate {
	var f rawNetlink
	return Candidate{
		Name: rawName, Kind: report.Floor,
		Open: func() (func(), error) {
			rs, err := s.Compile()
			if err == nil {
				f, err = newRawNetlink(rs)
			}
			return func() { f = rawNetlink{} }, err
		},
		Prepare: func() (Task, error) { return inPod(nil, f.apply) },
	}
}

func coldCandidate(s Sidecar) Candidate {
	var r rules.Redirect
	return Candidate{
		Name: coldName, Kind: report.Sluice,
		Open: func() (end func(), err error) {
			r, err = s.Redirect()
			return func() {}, err
		},
		Prepare: func() (Task, error) {
			return inPod(nil, func(ns *netns.NS) error {
				return created(nft.Apply(ns, rules.MustCompile(r)))
			})
		},
	}
}

func cachedCandidate(s Sidecar) Candidate {
	var p *nft.Prepared
	return Candidate{
		Name: cachedName, Kind: report.Sluice,
		Open: func() (end func(), err error) {
			p, err = s.prepare()
			return func() { p = nil }, err
		},
		Prepare: func() (Task, error) {
			return inPod(nil, func(ns *netns.NS) error {
				return created(p.Apply(ns, nft.ApplyOptions{}))
			})
		},
	}
}

// created returns an error unless the rules were created.
func created(r nft.Result, err error) error { return became(nft.Created, r, err) }

func became(want nft.Outcome, r nft.Result, err error) error {
	if err == nil && r.Outcome != want {
		err = fmt.Errorf("rules %s, want %s", r.Outcome, want)
	}
	return err
}
