package plugin_test

import (
	"testing"

	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
)

// BenchmarkAdd is an ADD of a pod of the mesh, from its decision to the record, and one that finds
// all in place. It does not include the start of the program.
func BenchmarkAdd(b *testing.B) {
	ns := netnstest.New(b)
	w, c := newWorld(b, "sidecar"), newCall(b, ns)
	b.Run("first", func(b *testing.B) {
		for b.Loop() {
			w.add(b, c)
			b.StopTimer()
			if e := w.call("DEL", c); e != nil {
				b.Fatal(e)
			}
			b.StartTimer()
		}
	})
	b.Run("unchanged", func(b *testing.B) {
		for b.Loop() {
			w.add(b, c)
		}
	})
}
