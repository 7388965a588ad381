package compat_test

import (
	"testing"

	"github.com/sluice-mesh/sluice/compat"
	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
)

// BenchmarkApply measures a first Apply, an Apply without changes, a Check with the snapshot of the
// previous Check, and the reading of iptables-legacy's tables in an empty namespace.
func BenchmarkApply(b *testing.B) {
	rs := compiled(b, dual, allDNS)
	for _, backendName := range backends {
		backend := chosen(b, backendName)
		b.Run("first/"+string(backendName), func(b *testing.B) {
			ns := netnstest.New(b)
			for b.Loop() {
				if _, err := backend.Apply(ns, rs, compat.Snapshot{}); err != nil {
					b.Fatal(err)
				}
				b.StopTimer()
				if _, err := backend.Remove(ns); err != nil {
					b.Fatal(err)
				}
				b.StartTimer()
			}
		})
		b.Run("unchanged/"+string(backendName), func(b *testing.B) {
			ns := netnstest.New(b)
			for b.Loop() {
				if _, err := backend.Apply(ns, rs, compat.Snapshot{}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	for _, backendName := range backends {
		b.Run("checked again/"+string(backendName), func(b *testing.B) {
			backend, ns := chosen(b, backendName), netnstest.New(b)
			if _, err := backend.Apply(ns, rs, compat.Snapshot{}); err != nil {
				b.Fatal(err)
			}
			last, err := backend.Check(ns, rs, compat.Snapshot{})
			for b.Loop() && err == nil {
				last, err = backend.Check(ns, rs, last.Snapshot)
			}
			if err != nil {
				b.Fatal(err)
			}
		})
	}
	b.Run("read legacy tables", func(b *testing.B) {
		ns := netnstest.New(b)
		for b.Loop() {
			if _, err := compat.LegacyTables(ns); err != nil {
				b.Fatal(err)
			}
		}
	})
}
