package bench_test

import (
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-mesh/sluice/e2e/bench"
	"github.com/sluice-mesh/sluice/e2e/bench/report"
	"github.com/sluice-mesh/sluice/nft"
	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
)

// exec replaces the shell, so the script executes two programs.
func TestMeasureCountsProgramsAndMemory(t *testing.T) {
	small := shell("small", "/bin/true; exec /bin/true")
	large := shell("large", "dd if=/dev/zero of=/dev/null bs=50000000 count=1")
	row := bench.Measure(bench.Row{
		ID: "shell", RoundsFactor: 1, Candidates: []bench.Candidate{small, large},
	}, 3)
	if len(row.Omitted) > 0 || row.Rounds != 3 {
		t.Fatalf("%d rounds, omitted candidates %+v; want 3 rounds and none omitted", row.Rounds, row.Omitted)
	}
	if got := row.Entry("small").Values[report.Executed].Median; got != 2 {
		t.Errorf("programs executed: %v, want 2", got)
	}
	if got := row.Entry("small").Values[report.Memory].Median; got < 100_000 || got > 10_000_000 {
		t.Errorf("memory of a shell: %v bytes, want 0.1 MB to 10 MB", got)
	}
	if got := row.Entry("large").Values[report.Memory].Median; got < 50_000_000 {
		t.Errorf("memory of a shell whose child uses 50 MB: %v bytes, want at least 50 MB", got)
	}
	for _, e := range row.Entries {
		for _, q := range []report.Quantity{report.Wall, report.CPU} {
			if s := e.Values[q]; s.Samples != 3 || s.Minimum <= 0 || s.FirstQuartile < s.Minimum ||
				s.Median < s.FirstQuartile || s.ThirdQuartile < s.Median {
				t.Errorf("%s: %s: %+v, want 3 samples and positive quartiles in ascending order", e.Name, q, s)
			}
		}
	}
}

func TestFailingCandidateIsOmittedWithTheReason(t *testing.T) {
	ended, reverted := 0, 0
	candidate := func(name, script string, check error) bench.Candidate {
		c := shell(name, script)
		c.Open = func() (func(), error) { return func() { ended++ }, nil }
		prepare := c.Prepare
		c.Prepare = func() (bench.Task, error) {
			task, err := prepare()
			task.Check, task.Undo = func() error { return check }, func() { reverted++ }
			return task, err
		}
		return c
	}
	row := bench.Measure(bench.Row{Candidates: []bench.Candidate{
		candidate("failing", "echo no such module >&2; exit 3", nil),
		candidate("good", "true", nil),
		candidate("idle", "true", errors.New("no change")),
		{Name: "unprepared", Prepare: func() (bench.Task, error) {
			return bench.Task{}, errors.New("not root")
		}},
		{Name: "closed", Open: func() (func(), error) {
			return nil, errors.New("no kernel feature")
		}},
	}}, 2)
	if len(row.Entries) != 1 || row.Entries[0].Name != "good" {
		t.Errorf("entries %+v, want only the candidate good", row.Entries)
	}
	got := map[string]string{}
	for _, omission := range row.Omitted {
		got[omission.Name] = strings.TrimPrefix(omission.Text, "/bin/sh: ")
	}
	want := map[string]string{
		"failing": "exit status 3: no such module\n", "idle": "no change",
		"unprepared": "not root", "closed": "no kernel feature",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("reasons of the omitted candidates (-want +got)\n%s", diff)
	}
	// Each of the three opened candidates runs once unmeasured, and the good one runs twice more.
	if ended != 3 || reverted != 5 {
		t.Errorf("closed %d times, want 3; reverted %d times, want 5", ended, reverted)
	}
}

// shell returns a candidate that runs a shell script.
func shell(name, text string) bench.Candidate {
	return bench.Candidate{Name: name, Prepare: func() (bench.Task, error) {
		return (&bench.Command{Path: "/bin/sh", Env: os.Environ(), Stdin: []byte(text)}).Task(), nil
	}}
}

// Linux limits an argument to 128 KiB (MAX_ARG_STRLEN), including the terminating zero byte.
func TestSidecarFlagsFitIntoAnArgument(t *testing.T) {
	for _, s := range []bench.Sidecar{{IPv4Prefixes: 10_000}, {IPv4Prefixes: 1000, IPv6Prefixes: 1000}} {
		for _, flag := range s.Flags() {
			if len(flag) >= 128<<10 {
				t.Errorf("%+v: argument of %d bytes, want less than 128 KiB", s, len(flag))
			}
		}
	}
}

// The prefixes are not adjacent. Therefore the kernel's set has one interval per prefix, and
// changing a prefix changes one element.
func TestCompiledSidecarHasOneRangePerPrefix(t *testing.T) {
	for _, s := range []bench.Sidecar{
		{},
		{IPv4Prefixes: 1000, IPv6Prefixes: 1000},
		{IPv4Prefixes: 10_000, IPv6Prefixes: 10_000},
		{IPv4Prefixes: 1000, ReplaceLastPrefix: true},
	} {
		rs, err := s.Compile()
		if err != nil {
			t.Fatal(err)
		}
		got := 0
		for _, m := range rs.Tables[0].Sets() {
			got += len(m.Ranges)
		}
		if got != s.IPv4Prefixes+s.IPv6Prefixes {
			t.Errorf("%+v: %d ranges, want %d", s, got, s.IPv4Prefixes+s.IPv6Prefixes)
		}
	}
}

func TestChangingAPrefixIsAnUpdateInPlace(t *testing.T) {
	ns := netnstest.New(t)
	for _, row := range []struct {
		sidecar bench.Sidecar
		want    nft.Outcome
	}{
		{bench.Sidecar{IPv4Prefixes: 1000, IPv6Prefixes: 1000}, nft.Created},
		{bench.Sidecar{IPv4Prefixes: 1000, IPv6Prefixes: 1000, ReplaceLastPrefix: true}, nft.Updated},
	} {
		rs, err := row.sidecar.Compile()
		if err != nil {
			t.Fatal(err)
		}
		if got, err := nft.Apply(ns, rs); err != nil || got.Outcome != row.want {
			t.Errorf("%+v: result %v, error %v; want %s", row.sidecar, got, err, row.want)
		}
	}
}
