package bench

import (
	"errors"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/e2e/bench/report"
	"github.com/sluice-mesh/sluice/nft/netns"
)

// packetRows measure the packets of flows that exist.
func packetRows(t Tools) []Row {
	const emptyChain = "one empty NAT chain"
	chain := programmer{name: emptyChain, kind: report.Floor, commands: func(t Tools, ns *netns.NS, _ Sidecar) ([]*Command, error) {
		c, err := t.Command(ns, "nft", []byte("add table inet empty\nadd chain inet empty output { type nat hook output priority -100; }\n"), "-f", "-")
		return []*Command{c}, err
	}}
	const plain, dns = "Sluice", "Sluice, DNS captured"
	row := Row{
		ID: "packets", Topic: "Packets of established flows", Name: "datagrams over lo, one after the other", Plotted: report.Rate, Share: 3,
		Note: "As soon as there is a NAT chain, conntrack looks at every packet: that is the cost. DNS capture needs chains that see each packet.",
		Goals: []report.Goal{
			{Of: plain, Quantity: report.Rate, Than: []string{emptyChain}, Factor: 0.97},
			{Of: dns, Quantity: report.Rate, Than: []string{istioLegacy.name + ", DNS captured"}, Factor: 0.97},
		},
		Contestants: []Contestant{t.sending("no rules", report.Floor, nil, Sidecar{}), t.sending(emptyChain, report.Floor, &chain, Sidecar{})},
	}
	ours := rulesApply
	ours.name = plain
	for _, p := range []programmer{ours, istioLegacy, istioNative} {
		row.Contestants = append(row.Contestants,
			t.sending(p.name, p.kind, &p, Sidecar{Plain: true}),
			t.sending(p.name+", DNS captured", p.kind, &p, Sidecar{}))
	}
	return []Row{row}
}

// sending sends datagrams in one pod over all rounds.
func (t Tools) sending(name string, kind report.Kind, p *programmer, s Sidecar) Contestant {
	const datagrams = 5000
	var f *traffic
	return Contestant{
		Name: name, Kind: kind,
		Open: func() (func(), error) {
			ns, err := NewPod()
			if err != nil {
				return nil, err
			}
			if p != nil {
				err = p.run(t, ns, s)
			}
			if err == nil {
				f, err = newTraffic(ns)
			}
			if err != nil {
				return nil, errors.Join(err, ns.Close())
			}
			return func() { _ = errors.Join(f.close(), ns.Close()) }, nil
		},
		Prepare: func() (Task, error) {
			return Task{Do: func() (Sample, error) {
				begin := time.Now()
				for range datagrams {
					if err := f.pass(); err != nil {
						return nil, err
					}
				}
				return Sample{report.Rate: datagrams / time.Since(begin).Seconds()}, nil
			}}, nil
		},
	}
}

// pass sends one datagram and takes it from the other socket, where it is when sending returns.
func (t *traffic) pass() error {
	var buf [64]byte
	if _, err := unix.Write(t.client, buf[:]); err != nil {
		return err
	}
	_, err := unix.Read(t.server, buf[:])
	return err
}
