package release

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sigstore/sigstore/pkg/cryptoutils"
	spdxjson "github.com/spdx/tools-golang/json"
	"sigs.k8s.io/yaml"
)

// newRelease returns a release with an empty output directory.
func newRelease(t *testing.T) *Release {
	t.Helper()
	return &Release{
		Source: "../..", Out: t.TempDir(), Version: "v0.2.0", Commit: strings.Repeat("a", 40),
		Hub:  "registry.example/mesh",
		Time: time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC),
	}
}

func newKey(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func (r *Release) read(t *testing.T, name string) []byte {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(r.Out, name))
	if err != nil {
		t.Fatal(err)
	}
	return content
}

// unpack returns the files of an archive, and checks their times and owners.
func unpack(t *testing.T, archive []byte, want time.Time) map[string]string {
	t.Helper()
	plain, err := gzip.NewReader(bytes.NewReader(archive))
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for r := tar.NewReader(plain); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil || h.Uid != 0 || h.Uname != "" || !h.ModTime.Equal(want) {
			t.Fatalf("archive entry %+v, want root as owner and the time %s: %v", h, want, err)
		}
		content, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		files[h.Name] = string(content)
	}
}

func TestInvalidFieldsAreRejectedTogether(t *testing.T) {
	full := t.TempDir()
	if err := os.WriteFile(filepath.Join(full, "x"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for _, v := range []string{"0.2.0", "v0.2", "v01.2.3", "v1.2.3+build", "", "v1.2.3 "} {
		err := (&Release{Version: v, Out: full, Source: "."}).Build(context.Background())
		for _, want := range []string{
			"version \"" + v + "\": must be a semantic version with the prefix v", "hub \"\": must be",
			full + ": must be empty",
		} {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("version %q: error %v, want %q in it", v, err, want)
			}
		}
	}
	for _, v := range []string{"v0.2.0", "v10.0.1-rc.1"} {
		if !validVersion.MatchString(v) {
			t.Errorf("version %s is rejected, want it accepted", v)
		}
	}
}

func TestChartHasVersionAndDigest(t *testing.T) {
	r := newRelease(t)
	digest := "sha256:" + strings.Repeat("0", 64)
	if err := r.addChart(digest); err != nil {
		t.Fatal(err)
	}
	files := unpack(t, r.read(t, "sluice-0.2.0.tgz"), r.Time)
	var chart, values map[string]any
	for name, into := range map[string]*map[string]any{
		"sluice/Chart.yaml": &chart, "sluice/values.yaml": &values,
	} {
		if err := yaml.Unmarshal([]byte(files[name]), into); err != nil {
			t.Fatal(err)
		}
	}
	if chart["version"] != "0.2.0" || chart["appVersion"] != "0.2.0" || values["digest"] != digest {
		t.Errorf("chart %v, digest %v; want version 0.2.0 and digest %s", chart, values["digest"], digest)
	}
	if hub := values["global"].(map[string]any)["hub"]; hub != r.Hub ||
		!strings.Contains(files["sluice/Chart.yaml"], "image: "+r.imageRef()+"\n") {
		t.Errorf("hub %v, want %s; Chart.yaml, want the image %s:\n%s", hub, r.Hub, r.imageRef(),
			files["sluice/Chart.yaml"])
	}
	annotations := chart["annotations"].(map[string]any)
	var changes []change
	if err := yaml.UnmarshalStrict([]byte(annotations["artifacthub.io/changes"].(string)),
		&changes); err != nil || len(changes) < 10 || changes[0].Kind != "added" {
		t.Errorf("changes %+v, error %v, want at least 10 changes, the first of kind added", changes, err)
	}
	if files["sluice/templates/daemonset.yaml"] == "" || files["sluice/.helmignore"] == "" {
		t.Error("the chart does not contain templates/daemonset.yaml or .helmignore")
	}
	for name := range files {
		if strings.HasSuffix(name, ".go") {
			t.Errorf("%s is in the chart", name)
		}
	}
}

func TestChangesOfAVersion(t *testing.T) {
	const log = "# Change log\n\n## v0.2.0 (not yet)\n\n### Added\n\n* `one`: a\n  b\n* two\n\n" +
		"### Changed\n\n* three\n\n### Upgrade\n\n* no kind\n\n## v0.1.0\n\n### Fixed\n\n* old\n"
	want := []change{{"added", "`one`: a b"}, {"added", "two"}, {"changed", "three"}}
	if got := changesOf(log, "v0.2.0"); !slices.Equal(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if got := changesOf(log, "v0.2"); len(got) > 0 {
		t.Errorf("version without a section: got %+v, want no changes", got)
	}
}

func TestKrewManifestContainsTheArchives(t *testing.T) {
	r := newRelease(t)
	for _, arch := range Architectures {
		if err := r.addArchive(r.archiveName(Client,
			arch), []file{{Client, 0o755, []byte(arch)}, {"LICENSE", 0o644, nil}}); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.addKrew(); err != nil {
		t.Fatal(err)
	}
	// The fields in the version v1alpha2 of krew's format.
	var m struct {
		APIVersion, Kind string
		Metadata         struct{ Name string }
		Spec             struct {
			Version, Homepage, ShortDescription, Description, Caveats string

			Platforms []struct {
				Selector         struct{ MatchLabels map[string]string }
				URI, SHA256, Bin string
				Files            []struct{ From, To string }
			}
		}
	}
	if err := yaml.UnmarshalStrict(r.read(t, "sluice.yaml"), &m); err != nil {
		t.Fatal(err)
	}
	if m.Kind != "Plugin" || m.Spec.Version != "v0.2.0" ||
		len(m.Spec.Platforms) != len(Architectures) {
		t.Fatalf("manifest %+v, want a plugin in version v0.2.0 for %q", m, Architectures)
	}
	for _, p := range m.Spec.Platforms {
		archive := p.URI[strings.LastIndex(p.URI, "/")+1:]
		files := unpack(t, r.read(t, archive), r.Time)
		sum, err := r.checksum(archive)
		if err != nil || p.SHA256 != sum || files[p.Bin] != p.Selector.MatchLabels["arch"] {
			t.Errorf("platform %+v, want the checksum %s and its architecture's program: %v", p, sum, err)
		}
		for _, f := range p.Files {
			if _, ok := files[f.From]; !ok {
				t.Errorf("%s is not in %s", f.From, archive)
			}
		}
	}
}

// sigstore's verifier accepts the signatures, and rejects other content and other keys.
func TestSignatures(t *testing.T) {
	key := newKey(t)
	digest := "sha256:" + strings.Repeat("1", 64)
	r := newRelease(t)
	r.Key = key
	for _, arch := range Architectures {
		if err := r.addArchive(r.archiveName(Client, arch), nil); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.addChart(digest); err != nil {
		t.Fatal(err)
	}
	if err := r.finish(digest); err != nil {
		t.Fatal(err)
	}
	sums, text := r.read(t, "SHA256SUMS"), string(r.read(t, "SHA256SUMS.sig"))
	if err := verify(&key.PublicKey, sums, text); err != nil {
		t.Errorf("verify: %v", err)
	}
	if second, err := sign(key, sums); err != nil || second != text {
		t.Errorf("second signature %q, error %v; want the first signature %q", second, err, text)
	}
	changed := slices.Clone(sums)
	changed[0] ^= 1
	for reason, err := range map[string]error{
		"changed content": verify(&key.PublicKey, changed, text),
		"another key":     verify(&newKey(t).PublicKey, sums, text),
		"no base64":       verify(&key.PublicKey, sums, "!"),
	} {
		if err == nil {
			t.Errorf("verify with %s: no error, want an error", reason)
		}
	}
	image, err := newImageSignature(key, r.imageRef(), digest)
	if err != nil {
		t.Fatal(err)
	}
	if err := verifyImage(&key.PublicKey, image, digest); err != nil {
		t.Errorf("verifyImage: %v", err)
	}
	if err := verifyImage(&key.PublicKey, image, "sha256:"+strings.Repeat("2", 64)); err == nil {
		t.Error("verifyImage with another digest: no error, want an error")
	}
	if err := verifyImage(&newKey(t).PublicKey, image, digest); err == nil {
		t.Error("verifyImage with another key: no error, want an error")
	}
	if got := SignatureTag(digest); got != "sha256-"+strings.Repeat("1", 64)+".sig" {
		t.Errorf("tag %s, want the digest with a dash and .sig", got)
	}
}

func TestParseKey(t *testing.T) {
	password := []byte("secret")
	private, public, err := cryptoutils.GeneratePEMEncodedECDSAKeyPair(elliptic.P256(),
		cryptoutils.StaticPasswordFunc(password))
	if err != nil {
		t.Fatal(err)
	}
	key, err := ParseKey(private, password)
	if err != nil {
		t.Fatal(err)
	}
	if want, err := cryptoutils.UnmarshalPEMToPublicKey(public); err != nil ||
		!key.PublicKey.Equal(want) {
		t.Errorf("the parsed key differs from the generated key (error %v)", err)
	}
	rsa, _, err := cryptoutils.GeneratePEMEncodedRSAKeyPair(2048, nil)
	if err != nil {
		t.Fatal(err)
	}
	for reason, got := range map[string]error{
		"wrong password": errorOf(ParseKey(private, []byte("wrong"))),
		"no PEM":         errorOf(ParseKey([]byte("x"), nil)), "RSA": errorOf(ParseKey(rsa, nil)),
	} {
		if got == nil || !strings.HasPrefix(got.Error(), "private key: ") {
			t.Errorf("%s: error %v, want an error about the private key", reason, got)
		}
	}
}

func errorOf[T any](_ T, err error) error { return err }

func TestProvenanceContainsEachArtifact(t *testing.T) {
	r := newRelease(t)
	if err := errors.Join(r.add("a", []byte("a")), r.add("b", []byte("b")),
		r.addProvenance("sha256:"+strings.Repeat("3", 64))); err != nil {
		t.Fatal(err)
	}
	var s struct {
		Subject   []struct{ Name string }
		Predicate struct {
			BuildDefinition struct {
				ResolvedDependencies []struct{ Digest map[string]string }
			}
		}
	}
	if err := json.Unmarshal(r.read(t, "provenance.intoto.json"), &s); err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, subject := range s.Subject {
		names = append(names, subject.Name)
	}
	if !slices.Equal(names, []string{r.imageRef(), "a", "b"}) ||
		s.Predicate.BuildDefinition.ResolvedDependencies[0].Digest["gitCommit"] != r.Commit {
		t.Errorf("subjects %v, want the image, a and b; statement %+v", names, s)
	}
}

func TestSBOMListsTheModules(t *testing.T) {
	path := filepath.Join(t.TempDir(), "release")
	if out, err := exec.Command("go", "build", "-o", path,
		"./cmd/release").CombinedOutput(); err != nil {
		t.Fatalf("go build: %v: %s", err, out)
	}
	program, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	r := newRelease(t)
	if err := r.addSBOM("rules", "amd64", program); err != nil {
		t.Fatal(err)
	}
	document, err := spdxjson.Read(bytes.NewReader(r.read(t, "rules_0.2.0_linux_amd64.spdx.json")))
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(document)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`"stdlib"`, "github.com/google/go-containerregistry", "pkg:golang/sigs.k8s.io/yaml@",
		`"2026-11-01T12:00:00Z"`,
	} {
		if !strings.Contains(string(text), want) {
			t.Errorf("the document does not contain %s", want)
		}
	}
	if err := r.addSBOM("rules", "amd64", []byte("no program")); err == nil {
		t.Error("addSBOM of a file that is not a Go program: no error, want an error")
	}
}

func TestManPage(t *testing.T) {
	r := newRelease(t)
	page := string(manPage("rules", "1", r,
		"# rules\n\n## Name\n\n`rules` - text, see [diff](diff/README.md), [the\nchart](chart/README.md) and [home](https://a.b)\n\n"+
			"```\n# comment of a shell\n```\n"))
	if strings.Contains(page, "README") {
		t.Errorf("the page contains a link to a file:\n%s", page)
	}
	for _, want := range []string{
		"see diff, the\nchart and", "https://a.b", ".TH RULES 1 \"November 2026\" \"Sluice 0.2.0\"", ".SH Name",
		"# comment of a shell",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("the page does not contain %q:\n%s", want, page)
		}
	}
}

// Packages of the same files are identical.
func TestPackagesAreReproducible(t *testing.T) {
	var all [2][]byte
	for i := range all {
		r := newRelease(t)
		docs := documents{
			man: []file{
				{"rules.1", 0o644, []byte(".TH")}, {"sluice-cni.8", 0o644, []byte(".TH")},
			},
			completions: []file{
				{"_rules", 0o644, []byte("zsh")},
				{"rules.bash", 0o644, []byte("bash")},
				{"rules.fish", 0o644, []byte("fish")},
			},
		}
		if err := r.addPackages("arm64", []byte("program"), []byte("license"), docs); err != nil {
			t.Fatal(err)
		}
		all[i] = append(r.read(t, "sluice-rules_0.2.0_arm64.deb"),
			r.read(t, "sluice-rules_0.2.0_arm64.rpm")...)
	}
	if !bytes.Equal(all[0], all[1]) {
		t.Error("packages of the same files differ")
	}
}
