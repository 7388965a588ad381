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

// world is a publisher in a bubble of synctest, its files and its API server.
type world struct {
	*token.Publisher
	t       *testing.T
	server  *apiservertest.Server
	options token.Options
	stop    func()
}

// jwt returns a token that is good from now on for some time.
func jwt(life time.Duration) string {
	return apiservertest.JWT(account, time.Now(), time.Now().Add(life))
}

// start starts a publisher for an agent that has a projected token, and waits for its first pass.
func start(t *testing.T, prepare func(w *world)) *world {
	t.Helper()
	dir := t.TempDir()
	w := &world{t: t, server: apiservertest.StartInMemory(t), options: token.Options{
		Options: apiclient.Options{
			CAFile: filepath.Join(dir, "ca.crt"), TokenFile: filepath.Join(dir, "token"),
		},
		Kubeconfig: filepath.Join(dir, "kubeconfig"),
		Poll:       true,
	}}
	w.options.Dial, w.options.Server = w.server.Dial, w.server.URL()
	w.project(jwt(time.Hour))
	w.write(w.options.CAFile, string(w.server.CA()))
	if prepare != nil {
		prepare(w)
	}
	w.Publisher = token.New(w.options)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		w.Run(ctx)
	}()
	w.stop = func() {
		cancel()
		<-done
	}
	t.Cleanup(w.stop)
	synctest.Wait()
	return w
}

// project puts a token where the kubelet does, which the API server accepts.
func (w *world) project(text string) {
	w.server.AddToken(text)
	w.write(w.options.TokenFile, text+"\n")
}

// issues lets the API server issue tokens of such a life, which it accepts.
func (w *world) issues(life time.Duration) {
	w.server.Issue(func(int64) (string, time.Time) {
		text := jwt(life)
		w.server.AddToken(text)
		return text, time.Now().Add(life)
	})
}

func (w *world) write(path, text string) {
	w.t.Helper()
	if err := os.WriteFile(path+".new", []byte(text), 0o600); err != nil {
		w.t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		w.t.Fatal(err)
	}
}

// later lets time pass.
func later(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// published is what the plugin would use: cluster and token; empty if there is no kubeconfig.
func (w *world) published() (cluster map[string]any, text string) {
	w.t.Helper()
	content, err := os.ReadFile(w.options.Kubeconfig)
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
		w.t.Fatal(err)
	}
	return k.Clusters[0].Cluster, k.Users[0].User.Token
}

// checkProblem fails if the problem has not the text, or has a token.
func (w *world) checkProblem(text string) {
	w.t.Helper()
	err := w.Status().Problem
	if err == nil {
		if text != "" {
			w.t.Errorf("no problem, want %q", text)
		}
		return
	}
	if text == "" || !strings.Contains(err.Error(), text) {
		w.t.Errorf("problem %v, want %q", err, text)
	}
	_, now := w.published()
	projected, _ := os.ReadFile(w.options.TokenFile)
	for _, secret := range []string{now, strings.TrimSpace(string(projected)), w.server.Token()} {
		if secret != "" && strings.Contains(err.Error(), secret) {
			w.t.Errorf("a token in %v", err)
		}
	}
	if strings.ContainsAny(err.Error(), "\r\n") {
		w.t.Errorf("more than a line: %q", err)
	}
}

func inBase64(text []byte) string { return base64.StdEncoding.EncodeToString(text) }
