package image_test

import (
	"bytes"
	"log"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/validate"

	"github.com/sluice-mesh/sluice/e2e/image"
)

// built builds the command image for an architecture.
func built(t *testing.T, architecture string) image.Platform {
	t.Helper()
	dir := t.TempDir()
	build := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w",
		"-o", dir+"/usr/local/bin/image", "./image/cmd/image")
	build.Dir = ".."
	build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH="+architecture)
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v: %s", err, out)
	}
	return image.Platform{Architecture: architecture, Root: os.DirFS(dir)}
}

// Other tools read the image as specified, and its digest in a registry is the reported one.
func TestOtherToolsReadTheImage(t *testing.T) {
	var archive bytes.Buffer
	spec := image.Spec{
		Ref:        "registry.example/sluice:v1",
		Platforms:  []image.Platform{built(t, "amd64"), built(t, "arm64")},
		Entrypoint: []string{"/usr/local/bin/image"}, User: "65532",
		Labels: map[string]string{"a": "b"},
	}
	report, err := image.Write(&archive, spec)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	unpack := exec.Command("tar", "-x", "-C", dir)
	unpack.Stdin = &archive
	if out, err := unpack.CombinedOutput(); err != nil {
		t.Fatalf("unpack the archive: %v: %s", err, out)
	}
	outer, err := layout.ImageIndexFromPath(dir)
	if err != nil {
		t.Fatal(err)
	}
	digest, err := v1.NewHash(report.Digest)
	if err != nil {
		t.Fatal(err)
	}
	index, err := outer.ImageIndex(digest)
	if err != nil {
		t.Fatal(err)
	}
	if err := validate.Index(index); err != nil {
		t.Error(err)
	}
	server := httptest.NewServer(registry.New(registry.Logger(log.New(os.Stderr, "", 0))))
	defer server.Close()
	address, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	ref, err := name.ParseReference(address.Host+"/sluice:v1", name.Insecure)
	if err != nil {
		t.Fatal(err)
	}
	if err := remote.WriteIndex(ref, index); err != nil {
		t.Fatal(err)
	}
	for i, architecture := range []string{"", "amd64", "arm64"} {
		want, options := report.Digest, []remote.Option{}
		if i > 0 {
			want = report.Variants[i-1].Digest
			options = append(options, remote.WithPlatform(v1.Platform{
				OS: "linux", Architecture: architecture,
			}))
		}
		got, err := remote.Get(ref, options...)
		if err != nil {
			t.Fatal(err)
		}
		digest := got.Digest
		if i > 0 {
			variant, err := got.Image()
			if err != nil {
				t.Fatal(err)
			}
			if digest, err = variant.Digest(); err != nil {
				t.Fatal(err)
			}
		}
		if digest.String() != want {
			t.Errorf("platform %q: digest %s in the registry, want %s", architecture, digest,
				want)
		}
	}
	mustRun(t, dir, index, report)
}

// mustRun unpacks the layer of this machine's variant, and fails the test unless its program runs.
func mustRun(t *testing.T, dir string, index v1.ImageIndex, report image.Report) {
	t.Helper()
	own := slices.IndexFunc(report.Variants, func(v image.Variant) bool {
		return v.Architecture == runtime.GOARCH
	})
	if own < 0 {
		t.Fatalf("the image has no variant for %s", runtime.GOARCH)
	}
	digest, err := v1.NewHash(report.Variants[own].Digest)
	if err != nil {
		t.Fatal(err)
	}
	variant, err := index.Image(digest)
	if err != nil {
		t.Fatal(err)
	}
	config, err := variant.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	if config.Config.User != "65532" || config.Config.Labels["a"] != "b" {
		t.Errorf("configuration %+v, want the user and the label of the specification", config.Config)
	}
	layers, err := variant.Layers()
	if err != nil || len(layers) != 1 {
		t.Fatalf("%d layers, want 1: %v", len(layers), err)
	}
	plain, err := layers[0].Uncompressed()
	if err != nil {
		t.Fatal(err)
	}
	root := filepath.Join(dir, "root")
	if err := os.Mkdir(root, 0o700); err != nil {
		t.Fatal(err)
	}
	unpack := exec.Command("tar", "-x", "-C", root)
	unpack.Stdin = plain
	if out, err := unpack.CombinedOutput(); err != nil {
		t.Fatalf("unpack the layer: %v: %s", err, out)
	}
	program := exec.Command(filepath.Join(root, config.Config.Entrypoint[0]), "-h")
	if out, err := program.CombinedOutput(); err != nil || !bytes.Contains(out, []byte("-ref")) {
		t.Errorf("program of the image with -h: %v: %s", err, out)
	}
}
