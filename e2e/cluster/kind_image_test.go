package cluster

import (
	"context"
	"errors"
	"io"
	"log"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"github.com/sluice-mesh/sluice/e2e/cluster/build"
	"github.com/sluice-mesh/sluice/e2e/cluster/docker"
)

// A fakeEngine is an engine whose commands run script, with their arguments as positional
// parameters.
type fakeEngine struct {
	docker.Engine
	script string
}

func (e fakeEngine) Command(ctx context.Context, argv ...string) *exec.Cmd {
	return exec.CommandContext(ctx, "sh", append([]string{"-c", e.script, "sh"}, argv...)...)
}

// newImageCluster returns a cluster whose engine runs script. The file image in the directory of
// kind contains defaultImage.
func newImageCluster(t *testing.T, script, defaultImage string) *kindCluster {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "image"), []byte(defaultImage), 0o644); err != nil {
		t.Fatal(err)
	}
	return &kindCluster{
		Cluster: &Cluster{progress: newProgress("node", io.Discard)}, name: "node-1",
		engine: fakeEngine{script: script}, software: &build.Software{Kind: dir, Docker: dir},
	}
}

// pushImage pushes an index of two images to a registry, one for this and one for another
// architecture. It returns the image for this architecture, and the index's reference by digest.
func pushImage(t *testing.T) (v1.Image, string) {
	t.Helper()
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	t.Cleanup(server.Close)
	index, err := random.Index(100, 1, 0)
	if err != nil {
		t.Fatal(err)
	}
	var own v1.Image
	for _, architecture := range []string{"other", runtime.GOARCH} {
		if own, err = random.Image(100, 2); err != nil {
			t.Fatal(err)
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{
			Add: own, Descriptor: v1.Descriptor{
				Platform: &v1.Platform{OS: "linux", Architecture: architecture},
			},
		})
	}
	repository, err := name.NewRepository(strings.TrimPrefix(server.URL, "http://") + "/node")
	if err != nil {
		t.Fatal(err)
	}
	digest, err := index.Digest()
	if err != nil {
		t.Fatal(err)
	}
	ref := repository.Digest(digest.String())
	if err := remote.WriteIndex(ref, index); err != nil {
		t.Fatal(err)
	}
	return own, ref.String()
}

func TestNodeImageIsPulledForAnEngineWithoutRegistryAccess(t *testing.T) {
	image, ref := pushImage(t)
	loaded := filepath.Join(t.TempDir(), "loaded")
	k := newImageCluster(t, `[ "$*" = "docker load" ] && cat >'`+loaded+`'`, ref)
	got, err := k.nodeImage(t.Context())
	if err != nil || got != docker.NodeImage("node-1") {
		t.Fatalf("name %q, error %v; want %s", got, err, docker.NodeImage("node-1"))
	}
	tag, err := name.NewTag(got)
	if err != nil {
		t.Fatal(err)
	}
	archived, err := tarball.ImageFromPath(loaded, &tag)
	if err != nil {
		t.Fatal(err)
	}
	want, wantErr := image.ConfigName()
	if config, err := archived.ConfigName(); config != want || err != nil || wantErr != nil {
		t.Errorf("loaded image %s, errors %v and %v; want %s, the image for this architecture", config,
			err, wantErr, want)
	}
}

func TestNodeImageErrors(t *testing.T) {
	_, ref := pushImage(t)
	missing := strings.Replace(ref, "/node@", "/none@", 1)
	_, err := newImageCluster(t, "cat >/dev/null", missing).nodeImage(t.Context())
	if err == nil || !strings.Contains(err.Error(), "pull the node image "+missing) ||
		!strings.Contains(err.Error(), "E2E_NODE_IMAGE=build") {
		t.Errorf("missing image: error %v, want the image and a hint", err)
	}
	const script = "echo no space >&2; exit 3"
	_, err = newImageCluster(t, script, ref).nodeImage(t.Context())
	exit := new(exec.ExitError)
	if !errors.As(err, &exit) || !strings.Contains(err.Error(), "no space") {
		t.Errorf("docker load fails: error %v, want the exit status and the output", err)
	}
}
