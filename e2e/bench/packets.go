package bench

import (
	"errors"
	"runtime"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/e2e/bench/report"
	"github.com/sluice-mesh/sluice/nft/netns"
)

// trackingChain enables conntrack. No hook calls it. An empty NAT chain does not enable conntrack,
// because the kernel enables it only in a namespace with a rule that needs it, such as a redirect
// (nf_ct_netns_get in net/netfilter/nf_conntrack_proto.c).
const trackingChain = "add chain inet empty tracking\n" +
	"add rule inet empty tracking ct state new accept\n"

// emptyNATChain returns an installer that creates an empty NAT chain and executes the additional
// nft commands.
func emptyNATChain(name, extra string) installer {
	return installer{name, report.Floor, func(
		t Tools, ns *netns.NS, _ Sidecar,
	) ([]*Command, error) {
		script := "add table inet empty\n" +
			"add chain inet empty output { type nat hook output priority -100; }\n" + extra
		c, err := t.Command(ns, "nft", []byte(script), "-f", "-")
		return []*Command{c}, err
	}}
}

// packetRows returns the row that measures packets of established flows.
func packetRows(t Tools) []Row {
	untracked := emptyNATChain("one empty NAT chain, without conntrack", "")
	tracked := emptyNATChain("one empty NAT chain", trackingChain)
	const plain, dns = "Sluice", "Sluice, DNS captured"
	row := Row{
		ID: "packets", Topic: "Packets of established flows",
		Name: "sequential datagrams over lo", Plotted: report.Rate, RoundsFactor: 5,
		Goals: []report.Goal{
			{Entry: plain, Quantity: report.Rate, Others: []string{tracked.name}, Factor: 0.97},
			{
				Entry: dns, Quantity: report.Rate,
				Others: []string{istioLegacy.name + ", DNS captured"}, Factor: 0.97,
			},
		},
		Candidates: []Candidate{
			t.sendCandidate("no rules", report.Floor, podSetup{}),
			t.sendCandidate(untracked.name, untracked.kind, podSetup{installer: &untracked}),
			t.sendCandidate(tracked.name, tracked.kind, podSetup{installer: &tracked}),
		},
	}
	sluice := rulesApply
	sluice.name = plain
	for _, p := range []installer{sluice, istioLegacy, istioNative} {
		row.Candidates = append(row.Candidates,
			t.sendCandidate(p.name, p.kind,
				podSetup{installer: &p, sidecar: Sidecar{WithoutDNS: true}}),
			t.sendCandidate(p.name+", DNS captured", p.kind, podSetup{installer: &p}))
	}
	return []Row{row}
}

// sendCandidate returns a candidate that sends datagrams in the same pod in all rounds. Each round
// uses new sockets, because the memory addresses of sockets affect the result.
func (t Tools) sendCandidate(name string, kind report.Kind, setup podSetup) Candidate {
	const datagrams = 5000
	var pod *netns.NS
	return Candidate{
		Name: name, Kind: kind,
		Open: func() (end func(), err error) {
			if pod, err = NewPod(); err != nil {
				return nil, err
			}
			return setup.open(t, pod, pod.Close)
		},
		Prepare: func() (Task, error) {
			f, err := newTraffic(pod)
			if err != nil {
				return Task{}, err
			}
			if err := f.establish(); err != nil {
				return Task{}, errors.Join(err, f.close())
			}
			return Task{
				Do: func() (Sample, error) {
					elapsed, err := threadTime(func() error {
						for range datagrams {
							if err := f.sendOne(); err != nil {
								return err
							}
						}
						return nil
					})
					return Sample{report.Rate: datagrams / elapsed.Seconds()}, err
				},
				Undo: func() { _ = f.close() },
			}, nil
		},
	}
}

// threadTime returns the CPU time of a function that does all its work in the calling thread,
// including the kernel's work for packets over lo. Other load on the machine, which would change
// the result by some percent, is not included.
func threadTime(do func() error) (time.Duration, error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var begin, end unix.Timespec
	err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &begin)
	if err == nil {
		err = do()
	}
	err = errors.Join(err, unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &end))
	return time.Duration(end.Nano() - begin.Nano()), err
}
