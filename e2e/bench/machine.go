package bench

import (
	"cmp"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/e2e/bench/report"
)

// Machine describes the machine of this process.
func Machine() report.Machine {
	m := report.Machine{CPU: runtime.GOARCH, Cores: runtime.NumCPU(), Go: runtime.Version()}
	var name unix.Utsname
	if unix.Uname(&name) == nil {
		m.Kernel = unix.ByteSliceToString(name.Release[:])
	}
	var info unix.Sysinfo_t
	if unix.Sysinfo(&info) == nil {
		m.Memory = int64(info.Totalram) * int64(info.Unit)
	}
	if proc, err := procfs.NewDefaultFS(); err == nil {
		if cpus, err := proc.CPUInfo(); err == nil && len(cpus) > 0 {
			m.CPU = cmp.Or(cpus[0].ModelName, m.CPU)
		}
	}
	return m
}

// Programs describes the available programs.
func (t Tools) Programs() []report.Program {
	var programs []report.Program
	for _, p := range []struct {
		name    string
		version []string // arguments that print its version
	}{
		{Rules, []string{"version"}},
		{SluiceCNI, nil},
		{SluiceNode, nil},
		{IstioIptables, nil},
		{PilotAgent, nil},
		{IstioCNI, nil},
		{InstallCNI, nil},
		{"nft", []string{"--version"}},
		{"iptables-legacy", []string{"--version"}},
		{"iptables-nft", []string{"--version"}},
	} {
		path, err := t.Find(p.name)
		if err != nil {
			continue
		}
		described := report.Program{Name: filepath.Base(p.name), Version: istioVersion(path)}
		// Only built programs, which Find copies into t.Dir, have a relevant size.
		if info, err := os.Stat(path); err == nil && filepath.Dir(path) == t.Dir {
			described.Size = info.Size()
		}
		if p.version != nil {
			if out, err := t.Output(nil, p.name, p.version...); err == nil {
				described.Version, _, _ = strings.Cut(string(out), "\n")
			}
		}
		programs = append(programs, described)
	}
	return programs
}

// istioVersion returns the path and the version of Istio's module in an executable, or an empty
// string if the executable does not contain the module.
func istioVersion(path string) string {
	out, err := exec.Command("go", "version", "-m", path).Output()
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(out)) {
		if words := strings.Fields(line); len(words) >= 3 && words[1] == "istio.io/istio" {
			return words[1] + " " + words[2]
		}
	}
	return ""
}
