package bench

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"

	"github.com/sluice-mesh/sluice/e2e/bench/report"
	"github.com/sluice-mesh/sluice/nft/netns"
)

// Tools finds and runs the programs that write rules into a namespace.
type Tools struct {
	// Dir is a working directory for files and for copies of the programs in Bin; if it is empty,
	// they are not copied. Bin is the directory with the programs that the Makefile built.
	Dir, Bin string
}

// Paths, relative to Tools.Bin, of the programs that the Makefile builds.
const (
	Rules         = "rules"
	SluiceCNI     = "sluice-cni"
	SluiceNode    = "sluice-node"
	IstioIptables = "istio-iptables"
	PilotAgent    = "e2e/istio/pilot-agent" // shared with e2e/injection
	IstioCNI      = "istio-cni"
	InstallCNI    = "e2e/install-cni" // shared with e2e/suite
)

// Find returns the path of a program. If the program is in t.Bin, the path is that of a copy in
// t.Dir. Otherwise, Find searches PATH, /usr/sbin and /sbin. The error describes how to get the
// program.
func (t Tools) Find(name string) (string, error) {
	built := filepath.Join(t.Bin, name)
	if info, err := os.Stat(built); err == nil && info.Mode().IsRegular() {
		return t.copyProgram(built)
	}
	for _, dir := range append(filepath.SplitList(os.Getenv("PATH")), "/usr/sbin", "/sbin") {
		if path, err := exec.LookPath(filepath.Join(dir, name)); err == nil {
			return path, nil
		}
	}
	return "", fmt.Errorf("program %s not found: run \"make bench-peers\", or install the "+
		"packages nftables and iptables", name)
}

// copyProgram copies a built program to t.Dir, unless the copy exists, and returns the path of the
// copy. If t.Dir is empty, it returns the path of the built program. Programs on a node are copies
// too. A copy starts faster than the file that the linker wrote, because the page cache holds the
// copy in larger folios. This saves a tenth of the plugin's CPU time.
func (t Tools) copyProgram(built string) (string, error) {
	if t.Dir == "" {
		return built, nil
	}
	path := filepath.Join(t.Dir, filepath.Base(built))
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	program, err := os.ReadFile(built)
	if err != nil {
		return "", err
	}
	return path, os.WriteFile(path, program, 0o755)
}

// Command returns a command in the namespace. iptables locks a file in t.Dir, so that it does not
// wait for iptables processes outside the benchmark.
func (t Tools) Command(ns *netns.NS, name string, stdin []byte, args ...string) (*Command, error) {
	path, err := t.Find(name)
	if err != nil {
		return nil, err
	}
	env := []string{
		"PATH=" + os.Getenv("PATH") + ":/usr/sbin:/sbin",
		"XTABLES_LOCKFILE=" + filepath.Join(t.Dir, "xtables.lock"),
	}
	return &Command{Path: path, Args: args, Env: env, Stdin: stdin, NS: ns}, nil
}

// Output returns the output of a program in the namespace.
func (t Tools) Output(ns *netns.NS, name string, args ...string) ([]byte, error) {
	c, err := t.Command(ns, name, nil, args...)
	if err != nil {
		return nil, err
	}
	return c.Output()
}

// Empty returns a command that executes a static Go program with an empty function main. It builds
// the program at the first call.
func (t Tools) Empty() (*Command, error) {
	built := filepath.Join(t.Dir, "built", "empty")
	if _, err := os.Stat(built); err != nil {
		if err := buildEmpty(built); err != nil {
			return nil, err
		}
	}
	path, err := t.copyProgram(built)
	return &Command{Path: path}, err
}

// buildEmpty builds a program that does nothing.
func buildEmpty(path string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	source := path + ".go"
	if err := os.WriteFile(source, []byte("package main\n\nfunc main() {}\n"), 0o600); err != nil {
		return err
	}
	build := exec.Command("go", "build", "-ldflags", "-s -w", "-o", path, source)
	build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=")
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("go build %s: %w: %s", source, err, out)
	}
	return nil
}

// An installer writes the rules of a pod with commands.
type installer struct {
	name string
	kind report.Kind
	// commands returns the commands to execute in sequence.
	commands func(t Tools, ns *netns.NS, s Sidecar) ([]*Command, error)
}

// byFlags returns an installer that runs the program with these arguments: before, the sidecar's
// flags, and after.
func byFlags(name string, kind report.Kind, program string, before, after []string) installer {
	return installer{name, kind, func(t Tools, ns *netns.NS, s Sidecar) ([]*Command, error) {
		c, err := t.Command(ns, program, nil, slices.Concat(before, s.Flags(), after)...)
		return []*Command{c}, err
	}}
}

// The installers. The name of an Istio installer ends with the backend; auto means that the program
// detects one. istio-init is the program pilot-agent, which the init container
// executes. It includes istio-iptables, which is also a separate program.
var (
	rulesApply  = byFlags("rules apply", report.Sluice, Rules, []string{"apply"}, nil)
	rulesLegacy = byFlags("rules apply, iptables-legacy", report.Sluice, Rules, []string{"apply"},
		[]string{"--backend", "legacy"})
	istioLegacy = byFlags("istio-iptables, legacy", report.Peer, IstioIptables, nil,
		[]string{"--force-iptables-binary", "legacy"})
	istioNFT = byFlags("istio-iptables, iptables-nft", report.Peer, IstioIptables, nil,
		[]string{"--force-iptables-binary", "nft"})
	istioAuto   = byFlags("istio-iptables, auto", report.Peer, IstioIptables, nil, nil)
	istioNative = byFlags("istio-nftables", report.Peer, IstioIptables, nil,
		[]string{"--native-nftables"})

	initAuto = byFlags("istio-init, auto", report.Peer, PilotAgent, []string{"istio-iptables"},
		nil)
	initNative = byFlags("istio-init, nftables", report.Peer, PilotAgent,
		[]string{"istio-iptables"}, []string{"--native-nftables"})
)

// reconciling returns the installer with the flag that makes istio-iptables repair existing rules.
func (p installer) reconciling() installer {
	return installer{p.name + ", reconcile", p.kind, func(
		t Tools, ns *netns.NS, s Sidecar,
	) ([]*Command, error) {
		commands, err := p.commands(t, ns, s)
		if err == nil {
			commands[0].Args = append(commands[0].Args, "--reconcile")
		}
		return commands, err
	}}
}

// run writes the sidecar's rules into the namespace without measuring the time.
func (p installer) run(t Tools, ns *netns.NS, s Sidecar) error {
	commands, err := p.commands(t, ns, s)
	for _, c := range commands {
		if err == nil {
			err = c.Run()
		}
	}
	return err
}

// writeFile writes a file to the directory of the tools.
func (t Tools) writeFile(name string, content []byte) (string, error) {
	path := filepath.Join(t.Dir, name)
	return path, os.WriteFile(path, content, 0o600)
}
