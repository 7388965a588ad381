package chaintest_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"
)

// An execution executes sluice-cni once, without the other plugins of the chain.
type execution struct {
	command string
	// environment contains the variables of CNI, and stdin the configuration.
	environment map[string]string
	stdin       []byte

	stdout, stderr bytes.Buffer
}

// execution returns an execution of the verb for the pod. previous is the previous result, or nil
// if there is none; it is encoded in the chain's version.
func (p *pod) execution(t testing.TB, verb string, c chain, previous *types100.Result) *execution {
	t.Helper()
	list := c.list(t, p.node)
	rt := p.runtimeConf()
	var args []string
	for _, pair := range rt.Args {
		args = append(args, pair[0]+"="+pair[1])
	}
	config := map[string]any{}
	if err := json.Unmarshal(list.Plugins[len(list.Plugins)-1].Bytes, &config); err != nil {
		t.Fatal(err)
	}
	config["name"], config["cniVersion"] = list.Name, list.CNIVersion
	if c.passesAnnotations {
		config["runtimeConfig"] = map[string]any{"io.kubernetes.cri.pod-annotations": p.annotations}
	}
	if previous != nil {
		converted, err := previous.GetAsVersion(c.version)
		if err != nil {
			t.Fatal(err)
		}
		config["prevResult"] = converted
	}
	stdin, err := json.Marshal(config)
	if err != nil {
		t.Fatal(err)
	}
	return &execution{
		command: filepath.Join(p.node.bin, pluginName), stdin: stdin,
		environment: map[string]string{
			"CNI_COMMAND": verb, "CNI_CONTAINERID": p.id, "CNI_NETNS": p.path, "CNI_IFNAME": "eth0",
			"CNI_PATH": p.node.bin, "CNI_ARGS": strings.Join(args, ";"),
		},
	}
}

// cmd returns the command of the execution. The caller starts it.
func (x *execution) cmd() *exec.Cmd {
	cmd := exec.Command(x.command)
	cmd.Env = os.Environ()
	for _, name := range slices.Sorted(maps.Keys(x.environment)) {
		cmd.Env = append(cmd.Env, name+"="+x.environment[name])
	}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(x.stdin), &x.stdout, &x.stderr
	return cmd
}

// run executes the plugin in the node's namespace. The returned error is the plugin's, if it prints
// one.
func (x *execution) run(n *node) error {
	err := n.ns.Do(func() error { return x.cmd().Run() })
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		return err
	}
	var answer types.Error
	if err := json.Unmarshal(x.stdout.Bytes(), &answer); err != nil {
		return fmt.Errorf("%w, standard output %q, standard error %q", exit, &x.stdout, &x.stderr)
	}
	return &answer
}

// execute runs the verb of sluice-cni alone, and returns its result, if any.
func (p *pod) execute(
	t testing.TB, verb string, c chain, previous *types100.Result,
) (*types100.Result, error) {
	t.Helper()
	x := p.execution(t, verb, c, previous)
	if err := x.run(p.node); err != nil {
		return nil, err
	}
	return x.result(t)
}

// result decodes the output of the plugin, which must be one JSON object and nothing else.
func (x *execution) result(t testing.TB) (*types100.Result, error) {
	t.Helper()
	if x.stdout.Len() == 0 {
		return nil, nil
	}
	var version struct {
		CNIVersion string `json:"cniVersion"`
	}
	if err := json.Unmarshal(x.stdout.Bytes(), &version); err != nil {
		return nil, fmt.Errorf("standard output %q: %w", &x.stdout, err)
	}
	return decodeResult(version.CNIVersion, x.stdout.Bytes())
}
