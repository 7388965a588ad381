package plugin_test

import (
	"testing"

	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
)

// BenchmarkAdd measures an ADD of a pod of the mesh, from the decision to the record, and a
// repeated ADD. It does not include the start of the program.
func BenchmarkAdd(b *testing.B) {
	ns := netnstest.New(b)
	env, c := newTestEnv(b, "sidecar"), newCall(b, ns)
	b.Run("first", func(b *testing.B) {
		for b.Loop() {
			env.add(b, c)
			b.StopTimer()
			if e := env.call("DEL", c); e != nil {
				b.Fatal(e)
			}
			b.StartTimer()
		}
	})
	b.Run("unchanged", func(b *testing.B) {
		for b.Loop() {
			env.add(b, c)
		}
	})
}
