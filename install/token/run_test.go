package token_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/sluice-mesh/sluice/install/apiclient"
	"github.com/sluice-mesh/sluice/install/token"
	"github.com/sluice-mesh/sluice/plugin/apiservertest"
)

// TestFilesAreWatched checks that a rotation by the kubelet, which replaces a link to a directory,
// is published immediately, and that a changed kubeconfig is restored immediately.
func TestFilesAreWatched(t *testing.T) {
	server := apiservertest.Start(t)
	dir := t.TempDir()
	volume := filepath.Join(dir, "volume")
	project := func(name, text string) {
		t.Helper()
		server.AddToken(text)
		for _, err := range []error{
			os.MkdirAll(filepath.Join(volume, name), 0o755),
			os.WriteFile(filepath.Join(volume, name, "token"), []byte(text), 0o600),
			os.WriteFile(filepath.Join(volume, name, "ca.crt"), server.CA(), 0o600),
			os.Symlink(name, filepath.Join(volume, "..data_tmp")),
			os.Rename(filepath.Join(volume, "..data_tmp"), filepath.Join(volume, "..data")),
		} {
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	project("..1", "first")
	for _, name := range []string{"token", "ca.crt"} {
		if err := os.Symlink(filepath.Join("..data", name),
			filepath.Join(volume, name)); err != nil {
			t.Fatal(err)
		}
	}
	changed := make(chan token.Status, 100)
	o := token.Options{
		Options: apiclient.Options{
			Server: server.URL(), CAFile: filepath.Join(volume, "ca.crt"),
			TokenFile: filepath.Join(volume, "token"),
		},
		Kubeconfig: filepath.Join(dir, "run", "kubeconfig"),
		Changed:    func(s token.Status) { changed <- s },
	}
	if err := os.Mkdir(filepath.Dir(o.Kubeconfig), 0o755); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		token.New(o).Run(ctx)
	}()
	defer func() {
		cancel()
		<-done
	}()
	// Without the watch, the publisher would check the files every 10 s, and nine changes would
	// take more than three times as long.
	const soon = 25 * time.Second
	began := time.Now()
	waitForPublication := func(published uint64) {
		t.Helper()
		for deadline := time.After(soon - time.Since(began)); ; {
			select {
			case s := <-changed:
				if s.Published == published && s.Problem == nil {
					return
				}
			case <-deadline:
				t.Fatalf("kubeconfig %d is not published in time", published)
			}
		}
	}
	waitForPublication(1)
	for i := range 8 {
		project(fmt.Sprint("..", 2+i), fmt.Sprint("token-", 2+i))
		waitForPublication(uint64(2 + i))
	}
	before, err := os.ReadFile(o.Kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(o.Kubeconfig); err != nil {
		t.Fatal(err)
	}
	for deadline := began.Add(soon); ; time.Sleep(time.Millisecond) {
		if after, err := os.ReadFile(o.Kubeconfig); err == nil && string(after) == string(before) {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the kubeconfig is not restored")
		}
	}
}
