package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/sluice-mesh/sluice/nft"
	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
)

// BenchmarkProcess compares whole processes: an empty Go program, and rules apply with the
// arguments of istio-init in a new namespace. The target for rules apply is at most three times the
// duration of the empty program.
func BenchmarkProcess(b *testing.B) {
	ns := netnstest.New(b)
	dir := b.TempDir()
	empty := filepath.Join(dir, "empty.go")
	if err := os.WriteFile(empty, []byte("package main\n\nfunc main() {}\n"), 0o600); err != nil {
		b.Fatal(err)
	}
	processes := []struct {
		name, source string
		args         []string
	}{
		{"empty", empty, nil},
		{"apply", ".", []string{
			"apply", "-p", "15001", "-z", "15006", "-u", "1337", "-m", "REDIRECT", "-i", "*", "-x",
			"", "-b", "*",
			"-d", "15090,15021,15020", "--pod-ip", "10.244.1.5",
		}},
	}
	for _, p := range processes {
		binary := filepath.Join(dir, p.name)
		build := exec.Command("go", "build", "-trimpath", "-ldflags", "-s -w", "-o", binary,
			p.source)
		build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=")
		if out, err := build.CombinedOutput(); err != nil {
			b.Fatalf("go build %s: %v\n%s", p.source, err, out)
		}
		b.Run(p.name, func(b *testing.B) {
			for b.Loop() {
				if err := ns.Do(exec.Command(binary, p.args...).Run); err != nil {
					b.Fatal(err)
				}
				b.StopTimer()
				if _, err := nft.Remove(ns); err != nil {
					b.Fatal(err)
				}
				b.StartTimer()
			}
		})
	}
}
