package token_test

import (
	"context"
	"encoding/base64"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"sigs.k8s.io/yaml"

	"github.com/sluice-mesh/sluice/install/apiclient"
	"github.com/sluice-mesh/sluice/install/token"
	"github.com/sluice-mesh/sluice/plugin/apiservertest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const account = "system:serviceaccount:sluice-system:sluice"

// testEnv is a publisher in a bubble of synctest, with its files and its API server.
type testEnv struct {
	*token.Publisher
	t       *testing.T
	server  *apiservertest.Server
	options token.Options
	stop    func()
}

// jwt returns a token that is valid from now on for the lifetime.
func jwt(lifetime time.Duration) string {
	return apiservertest.JWT(account, time.Now(), time.Now().Add(lifetime))
}

// start starts a publisher for an agent with a projected token, and waits for its first
// reconciliation.
func start(t *testing.T, prepare func(env *testEnv)) *testEnv {
	t.Helper()
	dir := t.TempDir()
	env := &testEnv{t: t, server: apiservertest.StartInMemory(t), options: token.Options{
		Options: apiclient.Options{
			CAFile: filepath.Join(dir, "ca.crt"), TokenFile: filepath.Join(dir, "token"),
		},
		Kubeconfig: filepath.Join(dir, "kubeconfig"),
		Poll:       true,
	}}
	env.options.Dial, env.options.Server = env.server.Dial, env.server.URL()
	env.project(jwt(time.Hour))
	env.write(env.options.CAFile, string(env.server.CA()))
	if prepare != nil {
		prepare(env)
	}
	env.Publisher = token.New(env.options)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		env.Run(ctx)
	}()
	env.stop = func() {
		cancel()
		<-done
	}
	t.Cleanup(env.stop)
	synctest.Wait()
	return env
}

// project writes a token as the kubelet does, and makes the API server accept the token.
func (env *testEnv) project(text string) {
	env.server.AddToken(text)
	env.write(env.options.TokenFile, text+"\n")
}

// issueTokens makes the API server issue and accept tokens with the lifetime.
func (env *testEnv) issueTokens(lifetime time.Duration) {
	env.server.Issue(func(int64) (string, time.Time) {
		text := jwt(lifetime)
		env.server.AddToken(text)
		return text, time.Now().Add(lifetime)
	})
}

func (env *testEnv) write(path, text string) {
	env.t.Helper()
	if err := os.WriteFile(path+".new", []byte(text), 0o600); err != nil {
		env.t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		env.t.Fatal(err)
	}
}

// later advances the virtual time of the bubble by d, and waits until all goroutines wait.
func later(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// published returns the cluster and the token in the published kubeconfig; empty if there is none.
func (env *testEnv) published() (cluster map[string]any, text string) {
	env.t.Helper()
	content, err := os.ReadFile(env.options.Kubeconfig)
	if os.IsNotExist(err) {
		return nil, ""
	}
	var k struct {
		Clusters []struct{ Cluster map[string]any }
		Users    []struct{ User struct{ Token string } }
	}
	if err == nil {
		err = yaml.Unmarshal(content, &k)
	}
	if err != nil {
		env.t.Fatal(err)
	}
	return k.Clusters[0].Cluster, k.Users[0].User.Token
}

// checkProblem fails the test if the problem does not contain the text, or contains a token. An
// empty text means that there is no problem.
func (env *testEnv) checkProblem(text string) {
	env.t.Helper()
	s := env.Status()
	err := s.Problem
	if s.ProblemSince.IsZero() != (err == nil) {
		env.t.Errorf("problem %v since %s, want both or neither", err, s.ProblemSince)
	}
	if err == nil {
		if text != "" {
			env.t.Errorf("the status has no problem, want a problem with %q", text)
		}
		return
	}
	if text == "" || !strings.Contains(err.Error(), text) {
		env.t.Errorf("problem %v; want the text %q, empty for no problem", err, text)
	}
	_, published := env.published()
	projected, _ := os.ReadFile(env.options.TokenFile)
	for _, secret := range []string{published, strings.TrimSpace(string(projected)), env.server.Token()} {
		if secret != "" && strings.Contains(err.Error(), secret) {
			env.t.Errorf("the problem contains a token: %v", err)
		}
	}
	if strings.ContainsAny(err.Error(), "\r\n") {
		env.t.Errorf("the problem has more than one line: %q", err)
	}
}

func inBase64(text []byte) string { return base64.StdEncoding.EncodeToString(text) }
