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
	rawName    = "the same netlink messages, prepared"
	emptyName  = "empty Go program"
	nftName    = "nft -f"
	coldName   = "Sluice in process"
	cachedName = "Sluice in process, batch cached"
	readName   = "Sluice in process, rules already read"
)

// inProcessRows returns rows that measure how the library installs the rules of a new pod.
func inProcessRows() []Row {
	const topic = "New pod, in process"
	var rows []Row
	for _, c := range []struct {
		id           string
		prefixes     int
		roundsFactor float64
		cachedRatio  float64 // maximum ratio of the time of cachedWriter to the time of rawWriter
	}{{"fresh", 0, 30, 1.15}, {"fresh-1000", 1000, 5, 1.2}, {"fresh-10000", 10_000, 1, 1.2}} {
		s := Sidecar{IPv4Prefixes: c.prefixes, IPv6Prefixes: c.prefixes}
		goals := []report.Goal{{
			Entry: cachedName, Quantity: report.Wall, Others: []string{rawName},
			Factor: c.cachedRatio,
		}}
		if c.prefixes == 0 {
			goals = append(goals, report.Goal{
				Entry: coldName, Quantity: report.Wall, Others: []string{rawName}, Factor: 1.3,
			})
		}
		rows = append(rows, Row{
			ID: c.id, Topic: topic, Name: excludedPrefixes(c.prefixes),
			RoundsFactor: c.roundsFactor, Goals: goals, Plotted: report.Wall,
			Candidates: []Candidate{
				rawWriter.candidate(s, timedPodTask), coldWriter.candidate(s, timedPodTask),
				cachedWriter.candidate(s, timedPodTask),
			},
		})
	}
	return rows
}

// excludedPrefixes describes the number of excluded prefixes.
func excludedPrefixes(n int) string {
	if n == 0 {
		return "no excluded prefixes"
	}
	return fmt.Sprintf("%d excluded prefixes per family", n)
}

// podTask returns a task in a new pod, and checks after the task that the pod redirects
// connections. prepare may be nil; it runs in the pod before the task is created.
func podTask(
	prepare func(*netns.NS) error, newTask func(*netns.NS) (Task, error),
) (task Task, err error) {
	ns, err := NewPod()
	if err != nil {
		return Task{}, err
	}
	if prepare != nil {
		err = prepare(ns)
	}
	if err == nil {
		task, err = newTask(ns)
	}
	if err != nil {
		_ = ns.Close()
		return Task{}, err
	}
	task.Check = func() error { return checkRedirected(ns, true) }
	task.Undo = func() { _ = ns.Close() }
	return task, nil
}

// timedPodTask returns a task that writes the rules of a new pod.
func timedPodTask(apply applier) (Task, error) {
	return podTask(nil, func(ns *netns.NS) (Task, error) {
		return timed(func() error { return apply(ns) }), nil
	})
}

// An applier writes the rules of a pod into its namespace.
type applier = func(*netns.NS) error

// A writer writes the rules of pods without executing a program.
type writer struct {
	name string
	kind report.Kind
	// newApplier does the work that is not measured, and returns a function to measure.
	newApplier func(rules.Redirect) (applier, error)
}

var (
	// rawWriter is the lower bound: it only sends netlink messages that were encoded before the
	// measurement.
	rawWriter = writer{rawName, report.Floor, func(r rules.Redirect) (applier, error) {
		raw, err := newRawNetlink(rules.MustCompile(r))
		return raw.apply, err
	}}
	// coldWriter compiles, encodes and applies Sluice's rules.
	coldWriter = writer{coldName, report.Sluice, func(r rules.Redirect) (applier, error) {
		return func(ns *netns.NS) error {
			return requireCreated(nft.Apply(ns, rules.MustCompile(r)))
		}, nil
	}}
	// cachedWriter applies Sluice's rules, which were compiled and encoded before the
	// measurement.
	cachedWriter = writer{cachedName, report.Sluice, func(r rules.Redirect) (applier, error) {
		p, err := nft.Prepare(rules.MustCompile(r))
		return func(ns *netns.NS) error {
			return requireCreated(p.Apply(ns, nft.ApplyOptions{}))
		}, err
	}}
)

// candidate returns a candidate whose tasks newTask creates.
func (w writer) candidate(s Sidecar, newTask func(applier) (Task, error)) Candidate {
	var apply applier
	return Candidate{
		Name: w.name, Kind: w.kind,
		Open: func() (end func(), err error) {
			r, err := s.Redirect()
			if err == nil {
				apply, err = w.newApplier(r)
			}
			return func() { apply = nil }, err
		},
		Prepare: func() (Task, error) { return newTask(apply) },
	}
}

// requireCreated returns an error unless the rules were created.
func requireCreated(r nft.Result, err error) error { return checkOutcome(nft.Created, r, err) }

// checkOutcome returns err, or an error if the outcome is not the expected one.
func checkOutcome(expected nft.Outcome, r nft.Result, err error) error {
	if err == nil && r.Outcome != expected {
		err = fmt.Errorf("outcome %s, want %s", r.Outcome, expected)
	}
	return err
}
