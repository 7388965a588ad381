package podcache_test

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"

	"github.com/sluice-mesh/sluice/install/serve/podcache"
	"github.com/sluice-mesh/sluice/plugin/apiservertest"
	"github.com/sluice-mesh/sluice/plugin/source"
	"github.com/sluice-mesh/sluice/rules/rulestest"
)

// injected returns an injected pod with the name, and with the fields that an API server adds.
func injected(tb testing.TB, name string) string {
	tb.Helper()
	text, err := os.ReadFile("../../../plugin/decide/testdata/sidecar.yaml")
	if err != nil {
		tb.Fatal(err)
	}
	return strings.NewReplacer("orders-6d5f8c7b9-x2k4n", name).Replace(string(text))
}

// BenchmarkMemory reports the heap memory of a cache of injected pods.
func BenchmarkMemory(b *testing.B) {
	for _, pods := range []int{250, 1000} {
		b.Run(fmt.Sprintf("pods=%d", pods), func(b *testing.B) {
			server := apiservertest.Start(b)
			for i := range pods {
				server.Put(injected(b, fmt.Sprintf("web-%d", i)))
			}
			options := optionsFor(server)
			options.Dial = nil
			for b.Loop() {
				before := heap()
				cache, err := podcache.New(podcache.Options{
					Client: client(b, options), NodeName: "node-2", Fetch: source.Fallback(),
				})
				if err != nil {
					b.Fatal(err)
				}
				ctx, cancel := context.WithCancel(b.Context())
				done := make(chan struct{})
				go func() {
					defer close(done)
					cache.Run(ctx)
				}()
				rulestest.Eventually(b, fmt.Sprintf("%d pods", pods), func() bool {
					return len(cache.Pods()) == pods
				})
				b.ReportMetric(float64(heap()-before)/1024, "KiB")
				b.ReportMetric(float64(heap()-before)/float64(pods), "B/pod")
				cancel()
				<-done
			}
		})
	}
}

// heap returns the number of bytes of the heap in use.
func heap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
