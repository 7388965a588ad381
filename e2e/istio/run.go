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

// A Result is the result of a program.
type Result struct {
	// Status is the exit status, 0 on success.
	Status int
	// Output and Errors are the standard output and standard error.
	Output, Errors string
}

// A Program is the path of an executable.
type Program string

// Run runs the program with the arguments in the namespace, with the resolv.conf and the
// environment of the configuration, and with its own iptables lock. An exit status other than 0 is
// not an error.
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
	// The mount is visible only to the program and its children.
	const script = `mount --bind "$0" /etc/resolv.conf && exec "$@"`
	cmd := exec.Command("unshare",
		append([]string{"--mount", "sh", "-c", script, resolvConf, string(p)}, args...)...)
	cmd.Env = append(environment(dir), c.Env...)
	return run(ns, cmd)
}

// Save returns the output of a program such as iptables-legacy-save in the namespace.
func Save(ns *netns.NS, program string) (string, error) {
	cmd := exec.Command(program)
	cmd.Env = environment("")
	r, err := run(ns, cmd)
	if err == nil && r.Status != 0 {
		err = fmt.Errorf("%s: status %d: %s", program, r.Status, strings.TrimSpace(r.Errors))
	}
	return r.Output, err
}

// environment returns an environment with the sbin directories in PATH and, unless dir is empty,
// with the iptables lock in dir.
func environment(dir string) []string {
	env := []string{"PATH=" + os.Getenv("PATH") + ":/usr/sbin:/sbin"}
	if dir != "" {
		env = append(env, "XTABLES_LOCKFILE="+filepath.Join(dir, "xtables.lock"))
	}
	return env
}

// run runs a command in the namespace. An exit status other than 0 is not an error.
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
