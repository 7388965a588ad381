package release

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"log"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/remote"
)

// TestReleaseOfTheCommit builds the release of the current commit in two clones at different paths,
// and checks that the files are equal. It then pushes one of the releases to a registry, and checks
// programs, packages, image, chart and signatures.
func TestReleaseOfTheCommit(t *testing.T) {
	if os.Getenv("SLUICE_LONG") != "1" {
		t.Skip("takes minutes: run make release-test")
	}
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	t.Cleanup(server.Close)
	hub := strings.TrimPrefix(server.URL, "http://") + "/mesh"
	key := newKey(t)
	var releases [2]*Release
	for i := range releases {
		source := filepath.Join(t.TempDir(), strings.Repeat("deeper/", i)+"sluice")
		command(t, ".", "git", "clone", "--quiet", "--local", "--no-hardlinks", "../..", source)
		text := command(t, source, "git", "show", "--no-patch", "--format=%H %cI", "HEAD")
		commit, date, _ := strings.Cut(strings.TrimSpace(text), " ")
		at, err := time.Parse(time.RFC3339, date)
		if err != nil {
			t.Fatal(err)
		}
		r := &Release{
			Source: source, Out: filepath.Join(t.TempDir(), "out"), Version: "v0.2.0",
			Commit: commit, Time: at, Hub: hub, Key: key,
			Progress: func(step string) { t.Logf("release %d: %s", i+1, step) },
		}
		if err := r.Build(t.Context()); err != nil {
			t.Fatal(err)
		}
		releases[i] = r
	}
	r := releases[0]
	names := fileNames(t, r.Out)
	if other := fileNames(t, releases[1].Out); !slices.Equal(names, other) {
		t.Fatalf("the second release has the files %s, want the files of the first: %s", other, names)
	}
	for _, name := range names {
		if !bytes.Equal(r.read(t, name), releases[1].read(t, name)) {
			t.Errorf("%s of the two releases differs", name)
		}
	}
	checkSums(t, r, names)
	checkProgramAndPackage(t, r)
	digest := checkRegistry(t, r)
	checkChart(t, r, digest)
	newIndex(t, r).checkInstallation()
}

// command runs a program in a directory, and returns its output.
func command(t *testing.T, dir, program string, args ...string) string {
	t.Helper()
	c := exec.CommandContext(t.Context(), program, args...)
	c.Dir = dir
	out, err := c.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", program, strings.Join(args, " "), err, out)
	}
	return string(out)
}

func fileNames(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// checkSums checks the checksums with sha256sum, and their signature.
func checkSums(t *testing.T, r *Release, names []string) {
	t.Helper()
	command(t, r.Out, "sha256sum", "--check", "--strict", "SHA256SUMS")
	sums := r.read(t, "SHA256SUMS")
	if err := verify(&r.Key.PublicKey, sums, string(r.read(t, "SHA256SUMS.sig"))); err != nil {
		t.Error(err)
	}
	for _, name := range names {
		if !strings.HasPrefix(name, "SHA256SUMS") &&
			!strings.Contains(string(sums), "  "+name+"\n") {
			t.Errorf("%s has no checksum", name)
		}
	}
}

// checkProgramAndPackage runs the command rules for amd64, and checks the files of its Debian
// package.
func checkProgramAndPackage(t *testing.T, r *Release) {
	t.Helper()
	dir := t.TempDir()
	command(t, dir, "tar", "-xzf", filepath.Join(r.Out, r.archiveName("sluice", "amd64")))
	got := command(t, dir, "./rules", "version")
	if want := fmt.Sprintf("rules %s, commit %s, ", r.Version, r.Commit); !strings.HasPrefix(got,
		want) {
		t.Errorf("rules version prints %q, want the prefix %q", got, want)
	}
	deb := command(t, r.Out, "dpkg-deb", "--contents", "sluice-rules_0.2.0_amd64.deb")
	for _, path := range []string{
		"./usr/bin/rules", "./usr/share/man/man1/rules.1.gz",
		"./usr/share/bash-completion/completions/rules",
		"./usr/share/zsh/vendor-completions/_rules",
		"./usr/share/fish/vendor_completions.d/rules.fish",
	} {
		if !strings.Contains(deb, " "+path+"\n") {
			t.Errorf("the package does not contain %s:\n%s", path, deb)
		}
	}
}

// checkRegistry pushes the release to its registry, and verifies the signatures of the image and
// the chart there. It returns the digest of the image.
func checkRegistry(t *testing.T, r *Release) string {
	t.Helper()
	if err := r.Push(t.Context()); err != nil {
		t.Fatal(err)
	}
	checkSigned(t, r, r.chartRef())
	return checkSigned(t, r, r.imageRef())
}

// checkSigned verifies the signature of an artifact in its registry, and returns the artifact's
// digest.
func checkSigned(t *testing.T, r *Release, ref string) string {
	t.Helper()
	tag, err := name.NewTag(ref)
	if err != nil {
		t.Fatal(err)
	}
	pushed, err := remote.Head(tag)
	if err != nil {
		t.Fatal(err)
	}
	digest := pushed.Digest.String()
	signature, err := remote.Image(tag.Context().Tag(SignatureTag(digest)))
	if err != nil {
		t.Fatal(err)
	}
	if err := verifyImage(&r.Key.PublicKey, signature, digest); err != nil {
		t.Errorf("%s: %v", ref, err)
	}
	return digest
}

// checkChart renders the chart from the registry with Helm, and checks that it uses the pushed
// image.
func checkChart(t *testing.T, r *Release, digest string) {
	t.Helper()
	helm, err := filepath.Abs(cmp.Or(os.Getenv("HELM"), "../../bin/e2e/helm"))
	if err != nil {
		t.Fatal(err)
	}
	home := t.TempDir()
	for _, variable := range []string{"HELM_CACHE_HOME", "HELM_CONFIG_HOME", "HELM_DATA_HOME"} {
		t.Setenv(variable, home)
	}
	charts := "oci://" + r.Hub + "/charts"
	manifest := command(t, r.Out, helm, "template", "sluice", charts+"/sluice", "--version",
		"0.2.0", "--plain-http", "-n", "istio-system")
	if want := fmt.Sprintf("image: %q", r.imageRef()+"@"+digest); !strings.Contains(manifest, want) {
		t.Errorf("the rendered chart does not contain %s:\n%s", want, manifest)
	}
}
