package istio

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/sluice-mesh/sluice/nft/netns"
)

// A Result is how a program ended.
type Result struct {
	// Status is its exit status; 0 if all went well.
	Status int
	// Output is what it printed, Errors what it printed to standard error.
	Output, Errors string
}

// A Program is an executable.
type Program string

// Run starts the program with the arguments in the namespace, and waits for its end. It sees the
// configuration's resolv.conf and environment and no other, and shares no lock of iptables with
// anybody. The error reports that it could not be started, not that it failed.
func (p Program) Run(ns *netns.NS, c Configuration, args ...string) (Result, error) {
	dir, err := os.MkdirTemp("", "istio-iptables-")
	if err != nil {
		return Result{}, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	resolvConf := filepath.Join(dir, "resolv.conf")
	if err := os.WriteFile(resolvConf, []byte(c.ResolvConf), 0o644); err != nil {
		return Result{}, err
	}
	// The mount is seen by the program and those that it starts only, and vanishes with them.
	const bind = `mount --bind "$0" /etc/resolv.conf && exec "$@"`
	cmd := exec.Command("unshare", append([]string{"--mount", "sh", "-c", bind, resolvConf, string(p)}, args...)...)
	cmd.Env = append(environment(dir), c.Env...)
	return run(ns, cmd)
}

// Save is what iptables-save of a variant (a name such as "iptables-legacy-save") prints in the
// namespace.
func Save(ns *netns.NS, program string) (string, error) {
	cmd := exec.Command(program)
	cmd.Env = environment("")
	r, err := run(ns, cmd)
	if err == nil && r.Status != 0 {
		err = fmt.Errorf("%s: status %d: %s", program, r.Status, strings.TrimSpace(r.Errors))
	}
	return r.Output, err
}

// environment lets programs find the commands of administrators, and lets iptables take a lock of
// this folder, if there is any.
func environment(dir string) []string {
	env := []string{"PATH=" + os.Getenv("PATH") + ":/usr/sbin:/sbin"}
	if dir != "" {
		env = append(env, "XTABLES_LOCKFILE="+filepath.Join(dir, "xtables.lock"))
	}
	return env
}

func run(ns *netns.NS, cmd *exec.Cmd) (Result, error) {
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := ns.Do(cmd.Run)
	r := Result{Output: stdout.String(), Errors: stderr.String()}
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.Exited() {
		r.Status, err = exit.ExitCode(), nil
	}
	if err != nil {
		return r, fmt.Errorf("run %s: %w", cmd.Path, err)
	}
	return r, nil
}
