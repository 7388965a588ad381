package validation

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
)

// optionsVariable is the name of an environment variable that contains options as JSON. If the
// variable is set, this binary does not run tests, but validates its own namespace with the
// options.
const optionsVariable = "SLUICE_VALIDATE"

func TestMain(m *testing.M) {
	if text, ok := os.LookupEnv(optionsVariable); ok {
		os.Exit(runAsProcess(text))
	}
	os.Exit(m.Run())
}

func runAsProcess(text string) int {
	var o Options
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		panic(err)
	}
	r, err := Run(nil, o)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	_ = json.NewEncoder(os.Stdout).Encode(r)
	return 0
}

// An identity contains the ids and the capabilities of a process.
type identity struct {
	uid, gid uint32
	// caps is the capability bounding set in the syntax of setpriv(1). If it is empty, the bounding
	// set is not changed.
	caps string
}

var (
	// validationContainer is the identity of the container istio-validation, which has no
	// capabilities.
	validationContainer = identity{uid: 1337, gid: 1337}
	// initContainer is the identity of the container istio-init, which has the capabilities
	// NET_ADMIN and NET_RAW.
	initContainer = identity{caps: "-all,+net_admin,+net_raw"}
)

// validateAs runs the validation in the namespace, in a separate process with the identity.
func validateAs(t *testing.T, ns *netns.NS, identity identity, o Options) (r Result) {
	t.Helper()
	netnstest.RequireIDs(t, int(identity.uid), int(identity.gid))
	o.Timeout = cmp.Or(o.Timeout, repeatTime)
	text, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	// Only root may be able to enter the directory of the executable.
	cmd := exec.Command("/proc/self/exe")
	if identity.caps != "" {
		cmd = exec.Command(netnstest.RequireBinary(t, "setpriv"), "--bounding-set="+identity.caps,
			"--inh-caps=-all", copyOfThisBinary(t))
	}
	cmd.Dir = "/"
	// By default a process with the race detector takes a second to exit.
	cmd.Env = append(os.Environ(), optionsVariable+"="+string(text), "GORACE=atexit_sleep_ms=0")
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{
		Uid: identity.uid, Gid: identity.gid,
	}}
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := ns.Do(cmd.Run); err != nil {
		t.Fatalf("run the validation: %v: %s", err, stderr.String())
	}
	if err := json.Unmarshal(stdout.Bytes(), &r); err != nil {
		t.Fatal(err)
	}
	return r
}

// copyOfThisBinary returns the path of a copy that root may execute without any capability, even if
// another user has built the binary.
func copyOfThisBinary(t *testing.T) string {
	t.Helper()
	content, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "validate")
	if err := os.WriteFile(path, content, 0o700); err != nil {
		t.Fatal(err)
	}
	return path
}
