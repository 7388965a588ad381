package route_test

import (
	"testing"

	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
	"github.com/sluice-mesh/sluice/nft/route"
	"github.com/sluice-mesh/sluice/rules"
)

var benchmarks = []struct {
	name string
	want rules.Routing
}{
	{"nothing", nothing}, {"passthrough", onlyPassthrough}, {"tproxy", everything},
}

func BenchmarkEnsureNew(b *testing.B) {
	for _, bc := range benchmarks {
		b.Run(bc.name, func(b *testing.B) {
			n := netnstest.New(b)
			for b.Loop() {
				change := mustEnsure(b, n, bc.want)
				b.StopTimer()
				if err := change.Undo(); err != nil {
					b.Fatal(err)
				}
				b.StartTimer()
			}
		})
	}
}

func BenchmarkEnsureAgain(b *testing.B) {
	for _, bc := range benchmarks {
		b.Run(bc.name, func(b *testing.B) {
			n := netnstest.New(b)
			mustEnsure(b, n, bc.want)
			for b.Loop() {
				mustEnsure(b, n, bc.want)
			}
		})
	}
}

func BenchmarkInSync(b *testing.B) {
	for _, bc := range benchmarks {
		b.Run(bc.name, func(b *testing.B) {
			n := netnstest.New(b)
			mustEnsure(b, n, bc.want)
			err := n.Do(func() error {
				for b.Loop() {
					if !route.InSync(bc.want) {
						b.Fatal("the routing is not in sync")
					}
				}
				return nil
			})
			if err != nil {
				b.Fatal(err)
			}
		})
	}
}

func BenchmarkRead(b *testing.B) {
	for _, bc := range benchmarks {
		b.Run(bc.name, func(b *testing.B) {
			n := netnstest.New(b)
			mustEnsure(b, n, bc.want)
			for b.Loop() {
				if _, err := route.Read(n); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkPruneOfNothing(b *testing.B) {
	n := netnstest.New(b)
	for b.Loop() {
		if _, err := route.Prune(n, nothing); err != nil {
			b.Fatal(err)
		}
	}
}
